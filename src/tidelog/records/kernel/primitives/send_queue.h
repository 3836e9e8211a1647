/* A queue of small responses, for send_queue.pxd: one owner, the thread of the event loop, puts them in, and a thread that never
   needs the interpreter sends them. The owner may send the rest itself at any time.

   The queue is a ring of bytes: for each response its socket, its size, and a copy of its bytes. Of the two, the one that holds
   the lock sends the first response. So all are sent in the order in which they came. Sockets are non-blocking: nobody waits for
   a client. What a socket does not take is returned to the owner, and so is everything that
   follows for that socket, until the owner has taken it back. If sending fails, the socket is shut down, and its reader
   notices. */

#ifndef TIDELOG_SEND_QUEUE_H
#define TIDELOG_SEND_QUEUE_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "wake_pipe.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* Python ignores SIGPIPE. */
#endif

#define TIDELOG_RING_BYTES (256 * 1024)
#define TIDELOG_TOGETHER 16 /* After this many responses the thread is told to send. */
#define TIDELOG_FEW 3       /* If no more wait, the owner sends them: waking the thread takes longer. */
#define TIDELOG_BEHIND 64   /* If this many responses wait, the thread probably gets no processor, and the owner sends them. */

typedef struct {
    int32_t fd;
    uint32_t size;
} tidelog_response;

typedef struct tidelog_rest {
    struct tidelog_rest *next;
    int fd;
    size_t size;
    unsigned char bytes[];
} tidelog_rest;

typedef struct {
    unsigned char ring[TIDELOG_RING_BYTES];
    /* The owner's: where the next response is put, and how many were put. */
    uint64_t put_at, puts;
    uint64_t copied_at; /* Of the response that is being put in. */
    /* What the owner tells the thread, and the thread the owner. */
    uint64_t told_at, told, sent_at, sent;
    int is_asleep, has_rests, is_closing, has_thread;
    pthread_mutex_t lock;
    pthread_cond_t come;
    pthread_t thread;
    unsigned char *is_full; /* By socket: whether it takes no more. */
    int sockets;
    tidelog_rest *first, *last;
    int wake_fds[2];
} tidelog_send_queue;

#define TIDELOG_GET(field) __atomic_load_n(&(field), __ATOMIC_SEQ_CST)
#define TIDELOG_SET(field, value) __atomic_store_n(&(field), (value), __ATOMIC_SEQ_CST)

static void tidelog_ring_read(const tidelog_send_queue *queue, uint64_t at, void *to, size_t size)
{
    size_t begin = at % TIDELOG_RING_BYTES;
    size_t part = TIDELOG_RING_BYTES - begin < size ? TIDELOG_RING_BYTES - begin : size;
    memcpy(to, queue->ring + begin, part);
    memcpy((char *)to + part, queue->ring, size - part);
}

static void tidelog_ring_write(tidelog_send_queue *queue, uint64_t at, const void *from, size_t size)
{
    size_t begin = at % TIDELOG_RING_BYTES;
    size_t part = TIDELOG_RING_BYTES - begin < size ? TIDELOG_RING_BYTES - begin : size;
    memcpy(queue->ring + begin, from, part);
    memcpy(queue->ring, (const char *)from + part, size - part);
}

/* Return how many bytes of a response the socket has taken; all if it is broken. */
static size_t tidelog_send_response(tidelog_send_queue *queue, uint64_t at, tidelog_response one)
{
    size_t begin = at % TIDELOG_RING_BYTES, done = 0;
    while (done < one.size) {
        size_t start = (begin + done) % TIDELOG_RING_BYTES;
        size_t part = TIDELOG_RING_BYTES - start < one.size - done ? TIDELOG_RING_BYTES - start : one.size - done;
        ssize_t count = send(one.fd, queue->ring + start, part, MSG_NOSIGNAL);
        if (count >= 0) {
            done += (size_t)count;
            if ((size_t)count < part)
                break;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno != EINTR) {
            shutdown(one.fd, SHUT_RDWR);
            return one.size;
        }
    }
    return done;
}

/* Keep the rest of a response for the owner. */
static void tidelog_keep_rest(tidelog_send_queue *queue, uint64_t at, tidelog_response one, size_t done)
{
    tidelog_rest *rest = malloc(sizeof *rest + one.size - done);
    if (!rest) {
        shutdown(one.fd, SHUT_RDWR); /* The peer sees the end of the connection, not a gap. */
        return;
    }
    rest->next = NULL;
    rest->fd = one.fd;
    rest->size = one.size - done;
    tidelog_ring_read(queue, at + done, rest->bytes, rest->size);
    queue->is_full[one.fd] = 1;
    if (queue->last)
        queue->last->next = rest;
    else
        queue->first = rest;
    queue->last = rest;
    if (!queue->has_rests) {
        TIDELOG_SET(queue->has_rests, 1);
        tidelog_wake(queue->wake_fds);
    }
}

/* Send the first response. The caller holds the lock, and has seen that there is one. */
static void tidelog_send_first(tidelog_send_queue *queue)
{
    tidelog_response one;
    tidelog_ring_read(queue, queue->sent_at, &one, sizeof one);
    uint64_t at = queue->sent_at + sizeof one;
    size_t done = queue->is_full[one.fd] ? 0 : tidelog_send_response(queue, at, one);
    if (done < one.size)
        tidelog_keep_rest(queue, at, one, done);
    TIDELOG_SET(queue->sent_at, at + one.size);
    TIDELOG_SET(queue->sent, queue->sent + 1);
}

static void *tidelog_send_queued(void *argument)
{
    tidelog_send_queue *queue = argument;
    pthread_mutex_lock(&queue->lock);
    while (!queue->is_closing) {
        if (queue->sent_at != TIDELOG_GET(queue->told_at)) {
            tidelog_send_first(queue);
            pthread_mutex_unlock(&queue->lock); /* The owner may want to send. */
            pthread_mutex_lock(&queue->lock);
            continue;
        }
        /* The owner tells first, and then looks whether the thread is asleep. */
        TIDELOG_SET(queue->is_asleep, 1);
        if (queue->sent_at == TIDELOG_GET(queue->told_at))
            pthread_cond_wait(&queue->come, &queue->lock);
        TIDELOG_SET(queue->is_asleep, 0);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

/* Return a new queue, NULL if the system has no memory or descriptors. Without a thread the owner sends everything. */
static tidelog_send_queue *tidelog_send_queue_open(int with_thread)
{
    tidelog_send_queue *queue = calloc(1, sizeof *queue);
    if (!queue)
        return NULL;
    if (!tidelog_wake_open(queue->wake_fds)) {
        free(queue);
        return NULL;
    }
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->come, NULL);
    /* Signals are for the threads of the interpreter. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    queue->has_thread = with_thread && !pthread_create(&queue->thread, NULL, tidelog_send_queued, queue);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return queue;
}

/* Send all that the owner has put in. The caller holds the lock. */
static void tidelog_send_rest(tidelog_send_queue *queue)
{
    queue->told = queue->puts;
    TIDELOG_SET(queue->told_at, queue->put_at);
    while (queue->sent_at != queue->put_at)
        tidelog_send_first(queue);
}

static void tidelog_finish(tidelog_send_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    tidelog_send_rest(queue);
    pthread_mutex_unlock(&queue->lock);
}

/* Have all that was put in sent: a few by the owner, more by the thread. */
static void tidelog_flush(tidelog_send_queue *queue)
{
    uint64_t waiting = queue->puts - TIDELOG_GET(queue->sent);
    int is_owners = waiting <= TIDELOG_FEW || waiting >= TIDELOG_BEHIND;
    queue->told = queue->puts;
    TIDELOG_SET(queue->told_at, queue->put_at);
    if (!queue->has_thread) {
        tidelog_finish(queue);
    } else if (is_owners && !pthread_mutex_trylock(&queue->lock)) {
        tidelog_send_rest(queue);
        pthread_mutex_unlock(&queue->lock);
    } else if (TIDELOG_GET(queue->is_asleep)) {
        pthread_mutex_lock(&queue->lock);
        TIDELOG_SET(queue->is_asleep, 0);
        pthread_cond_signal(&queue->come);
        pthread_mutex_unlock(&queue->lock);
    }
}

/* Whether a response of `size` bytes can be put in. If not, send the others first. */
static int tidelog_has_room(const tidelog_send_queue *queue, int fd, size_t size)
{
    return fd < queue->sockets
        && queue->put_at + sizeof(tidelog_response) + size - TIDELOG_GET(queue->sent_at) <= TIDELOG_RING_BYTES;
}

/* Make room for a response: send all others. Return 0 if there is no memory. */
static int tidelog_make_room(tidelog_send_queue *queue, int fd)
{
    tidelog_finish(queue); /* So nobody reads the flags. */
    if (fd < queue->sockets)
        return 1;
    int sockets = (fd + 256) / 256 * 256;
    unsigned char *flags = realloc(queue->is_full, (size_t)sockets);
    if (!flags)
        return 0;
    memset(flags + queue->sockets, 0, (size_t)(sockets - queue->sockets));
    queue->is_full = flags;
    queue->sockets = sockets;
    return 1;
}

/* Begin a response for which there is room. Nothing is in the queue before `tidelog_put_end`. */
static void tidelog_put_begin(tidelog_send_queue *queue, int fd, size_t size)
{
    tidelog_response one = {fd, (uint32_t)size};
    tidelog_ring_write(queue, queue->put_at, &one, sizeof one);
    queue->copied_at = queue->put_at + sizeof one;
}

static void tidelog_put_bytes(tidelog_send_queue *queue, const void *data, size_t size)
{
    tidelog_ring_write(queue, queue->copied_at, data, size);
    queue->copied_at += size;
}

/* The response is complete. Return whether enough are waiting for the thread to be told. */
static int tidelog_put_end(tidelog_send_queue *queue)
{
    queue->put_at = queue->copied_at;
    queue->puts++;
    return queue->puts - queue->told >= TIDELOG_TOGETHER;
}

/* Whether the first `number` responses have been sent, and the owner has taken what was left. */
static int tidelog_is_settled(tidelog_send_queue *queue, uint64_t number)
{
    return TIDELOG_GET(queue->sent) >= number && !TIDELOG_GET(queue->has_rests);
}

/* Send everything, and return what the sockets did not take, in order. The caller frees each. Then no socket counts as full. */
static tidelog_rest *tidelog_take_rests(tidelog_send_queue *queue)
{
    tidelog_wake_forget(queue->wake_fds);
    pthread_mutex_lock(&queue->lock);
    tidelog_send_rest(queue);
    tidelog_rest *first = queue->first;
    queue->first = queue->last = NULL;
    TIDELOG_SET(queue->has_rests, 0);
    for (tidelog_rest *rest = first; rest; rest = rest->next)
        queue->is_full[rest->fd] = 0;
    pthread_mutex_unlock(&queue->lock);
    return first;
}

static void tidelog_send_queue_close(tidelog_send_queue *queue)
{
    if (queue->has_thread) {
        pthread_mutex_lock(&queue->lock);
        queue->is_closing = 1;
        pthread_cond_signal(&queue->come);
        pthread_mutex_unlock(&queue->lock);
        pthread_join(queue->thread, NULL);
    }
    for (tidelog_rest *rest = queue->first, *next; rest; rest = next) {
        next = rest->next;
        free(rest);
    }
    tidelog_wake_close(queue->wake_fds);
    free(queue->is_full);
    free(queue);
}

#endif
