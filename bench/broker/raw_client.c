/* Sends prepared requests to a broker as fast as it answers, and measures. One thread, one epoll.
 *
 *     raw_client PORT DEPTH COUNT SECONDS FRAMES...
 *
 * Each FRAMES file is one connection: requests with their sizes in front, sent in order, over and over. DEPTH requests of a
 * connection are on their way at a time. It ends after COUNT responses in all, or after SECONDS, whichever comes first (0: no limit).
 * Responses are counted and thrown away. Prints one line of JSON: seconds, responses, bytes, latencies in microseconds. The last
 * three say how alike the connections fare: the fewest and the most responses of one, and the longest that one of them has waited
 * for a response, or still waits at the end.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAX_DEPTH 64
#define READ_BYTES (4 << 20)

struct connection {
    int fd;
    const uint8_t *frames;
    size_t frames_bytes;
    size_t next;          /* where the next request to be sent starts */
    size_t at, end;       /* what of the current request is still to be sent */
    int in_flight;
    uint64_t sent_at[MAX_DEPTH];
    unsigned first, last; /* of sent_at */
    uint8_t head[4];
    int head_bytes;
    int64_t left;         /* bytes of the current response that have not come yet */
    int wants_write;
    uint64_t responses, longest_ns;
};

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t int32_at(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void die(const char *what) {
    fprintf(stderr, "raw_client: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int epoll_fd;
static uint64_t bytes_out, bytes_in, responses, started, limit, deadline;
static uint64_t requested;
static float *latencies;
static uint64_t latencies_room;

static void watch(struct connection *c, int wants_write) {
    if (c->wants_write == wants_write)
        return;
    c->wants_write = wants_write;
    struct epoll_event event = {.events = EPOLLIN | (wants_write ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event))
        die("epoll_ctl");
}

static void send_more(struct connection *c, int depth) {
    for (;;) {
        if (c->at == c->end) {
            if (c->in_flight >= depth || (limit && requested >= limit))
                break;
            c->at = c->next;
            c->end = c->at + 4 + int32_at(c->frames + c->at);
            c->next = c->end >= c->frames_bytes ? 0 : c->end;
            c->sent_at[c->last++ % MAX_DEPTH] = now_ns();
            c->in_flight++;
            requested++;
        }
        ssize_t n = send(c->fd, c->frames + c->at, c->end - c->at, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EAGAIN) {
                watch(c, 1);
                return;
            }
            die("send");
        }
        c->at += (size_t)n;
        bytes_out += (uint64_t)n;
    }
    watch(c, 0);
}

static void answered(struct connection *c) {
    uint64_t took = now_ns() - c->sent_at[c->first++ % MAX_DEPTH];
    c->in_flight--;
    c->responses++;
    if (took > c->longest_ns)
        c->longest_ns = took;
    if (responses == latencies_room) {
        latencies_room = latencies_room ? latencies_room * 2 : 1 << 16;
        latencies = realloc(latencies, latencies_room * sizeof *latencies);
        if (!latencies)
            die("realloc");
    }
    latencies[responses++] = (float)(took / 1000.0);
}

static void take(struct connection *c, const uint8_t *data, size_t size) {
    bytes_in += size;
    while (size) {
        if (c->left) {
            size_t part = (int64_t)size < c->left ? size : (size_t)c->left;
            c->left -= (int64_t)part;
            data += part;
            size -= part;
            if (!c->left)
                answered(c);
        } else {
            c->head[c->head_bytes++] = *data++;
            size--;
            if (c->head_bytes == 4) {
                c->left = int32_at(c->head);
                c->head_bytes = 0;
            }
        }
    }
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc < 6) {
        fprintf(stderr, "usage: raw_client PORT DEPTH COUNT SECONDS FRAMES...\n");
        return 2;
    }
    int port = atoi(argv[1]), depth = atoi(argv[2]);
    limit = strtoull(argv[3], NULL, 10);
    double seconds = atof(argv[4]);
    int n = argc - 5;
    if (depth < 1 || depth > MAX_DEPTH)
        return 2;
    struct connection *connections = calloc((size_t)n, sizeof *connections);
    uint8_t *buffer = malloc(READ_BYTES);
    epoll_fd = epoll_create1(0);
    for (int i = 0; i < n; i++) {
        struct connection *c = connections + i;
        int file = open(argv[5 + i], O_RDONLY);
        struct stat info;
        if (file < 0 || fstat(file, &info) || info.st_size < 4)
            die(argv[5 + i]);
        c->frames_bytes = (size_t)info.st_size;
        c->frames = mmap(NULL, c->frames_bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
        if (c->frames == MAP_FAILED)
            die("mmap");
        close(file);
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        if (connect(c->fd, (struct sockaddr *)&address, sizeof address))
            die("connect");
        int one = 1;
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fcntl(c->fd, F_SETFL, O_NONBLOCK);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event))
            die("epoll_ctl");
    }
    started = now_ns();
    deadline = seconds > 0 ? started + (uint64_t)(seconds * 1e9) : UINT64_MAX;
    for (int i = 0; i < n; i++)
        send_more(connections + i, depth);
    uint64_t now = started;
    while ((!limit || responses < limit) && now < deadline) {
        struct epoll_event events[64];
        int got = epoll_wait(epoll_fd, events, 64, 100);
        if (got < 0 && errno != EINTR)
            die("epoll_wait");
        for (int i = 0; i < got; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
                ssize_t size = recv(c->fd, buffer, READ_BYTES, 0);
                if (size == 0) {
                    fprintf(stderr, "raw_client: the broker closed the connection after %llu responses\n", (unsigned long long)responses);
                    return 1;
                }
                if (size < 0 && errno != EAGAIN)
                    die("recv");
                if (size > 0)
                    take(c, buffer, (size_t)size);
            }
            send_more(c, depth);
        }
        now = now_ns();
    }
    double took = (double)(now_ns() - started) / 1e9;
    qsort(latencies, responses, sizeof *latencies, by_value);
    printf("{\"seconds\": %.6f, \"responses\": %llu, \"bytes_out\": %llu, \"bytes_in\": %llu", took, (unsigned long long)responses,
           (unsigned long long)bytes_out, (unsigned long long)bytes_in);
    if (responses)
        printf(", \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f", latencies[responses / 2],
               latencies[responses * 99 / 100], latencies[responses * 999 / 1000], latencies[responses - 1]);
    uint64_t fewest = UINT64_MAX, most = 0, longest_ns = 0, ended = now_ns();
    for (int i = 0; i < n; i++) {
        struct connection *c = connections + i;
        uint64_t waits = c->in_flight ? ended - c->sent_at[c->first % MAX_DEPTH] : 0;
        fewest = c->responses < fewest ? c->responses : fewest;
        most = c->responses > most ? c->responses : most;
        longest_ns = c->longest_ns > longest_ns ? c->longest_ns : longest_ns;
        longest_ns = waits > longest_ns ? waits : longest_ns;
    }
    printf(", \"fewest\": %llu, \"most\": %llu, \"longest_us\": %.1f}\n", (unsigned long long)fewest, (unsigned long long)most,
           (double)longest_ns / 1000.0);
    return 0;
}
