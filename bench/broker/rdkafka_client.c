/* Produces or consumes through librdkafka, as fast as it goes.
 *
 *     rdkafka_client LIBRARY produce PORT TOPIC PARTITIONS RECORDS BYTES [property=value ...]
 *     rdkafka_client LIBRARY consume PORT TOPIC PARTITIONS RECORDS 0     [property=value ...]
 *
 * LIBRARY is the librdkafka to load (confluent-kafka's wheel has one), so that no header is needed: what is used of its
 * interface is declared here. Prints one line of JSON: seconds, records, bytes, refused.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct message {
    int err;
    void *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private_;
};

enum { PRODUCER, CONSUMER };
enum { COPY = 2, QUEUE_FULL = -184, BEGINNING = -2, AT_ONCE = 2000 };

static void *library;
static int64_t acknowledged, refused;

static void *function(const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "rdkafka_client: %s\n", dlerror());
        exit(1);
    }
    return found;
}

static void delivered(void *client, const struct message *message, void *opaque) {
    (void)client;
    (void)opaque;
    acknowledged++;
    if (message->err)
        refused++;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc < 8) {
        fprintf(stderr, "usage: rdkafka_client LIBRARY produce|consume PORT TOPIC PARTITIONS RECORDS BYTES [property=value ...]\n");
        return 2;
    }
    library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "rdkafka_client: %s\n", dlerror());
        return 1;
    }
    int is_producer = !strcmp(argv[2], "produce"), partitions = atoi(argv[5]);
    int64_t records = atoll(argv[6]);
    size_t bytes = (size_t)atoll(argv[7]);
    char error[512], address[64];
    void *(*conf_new)(void) = function("rd_kafka_conf_new");
    int (*conf_set)(void *, const char *, const char *, char *, size_t) = function("rd_kafka_conf_set");
    void *(*client_new)(int, void *, char *, size_t) = function("rd_kafka_new");
    void *(*topic_new)(void *, const char *, void *) = function("rd_kafka_topic_new");
    void (*set_delivered)(void *, void (*)(void *, const struct message *, void *)) = function("rd_kafka_conf_set_dr_msg_cb");
    int (*produce)(void *, int32_t, int, void *, size_t, const void *, size_t, void *) = function("rd_kafka_produce");
    int (*poll)(void *, int) = function("rd_kafka_poll");
    int (*last_error)(void) = function("rd_kafka_last_error");
    void *(*queue_new)(void *) = function("rd_kafka_queue_new");
    int (*consume_start)(void *, int32_t, int64_t, void *) = function("rd_kafka_consume_start_queue");
    ssize_t (*consume_batch)(void *, int, struct message **, size_t) = function("rd_kafka_consume_batch_queue");
    void (*message_destroy)(struct message *) = function("rd_kafka_message_destroy");

    void *conf = conf_new();
    snprintf(address, sizeof address, "127.0.0.1:%s", argv[3]);
    if (conf_set(conf, "bootstrap.servers", address, error, sizeof error)) {
        fprintf(stderr, "rdkafka_client: %s\n", error);
        return 1;
    }
    for (int i = 8; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value)
            return 2;
        *value++ = 0;
        if (conf_set(conf, argv[i], value, error, sizeof error)) {
            fprintf(stderr, "rdkafka_client: %s\n", error);
            return 1;
        }
    }
    if (is_producer)
        set_delivered(conf, delivered);
    void *client = client_new(is_producer ? PRODUCER : CONSUMER, conf, error, sizeof error);
    if (!client) {
        fprintf(stderr, "rdkafka_client: %s\n", error);
        return 1;
    }
    void *topic = topic_new(client, argv[4], NULL);
    int64_t done = 0, got_bytes = 0;
    double began = now();
    if (is_producer) {
        char *payload = malloc(bytes);
        uint32_t seed = 1;
        for (size_t i = 0; i < bytes; i++) {
            seed = seed * 1664525u + 1013904223u;
            payload[i] = (char)('A' + (seed >> 24) % 26);
        }
        while (done < records) {
            if (!produce(topic, (int32_t)(done % partitions), COPY, payload, bytes, NULL, 0, NULL)) {
                done++;
                got_bytes += (int64_t)bytes;
                if (done % 1000 == 0)
                    poll(client, 0);
            } else if (last_error() == QUEUE_FULL) {
                poll(client, 1);
            } else {
                fprintf(stderr, "rdkafka_client: produce: error %d\n", last_error());
                return 1;
            }
        }
        while (acknowledged < records)
            poll(client, 100);
    } else {
        void *queue = queue_new(client);
        struct message *messages[AT_ONCE];
        double silent_since = began;
        for (int p = 0; p < partitions; p++)
            consume_start(topic, p, BEGINNING, queue);
        while (done < records) {
            ssize_t got = consume_batch(queue, 1000, messages, AT_ONCE);
            if (got > 0)
                silent_since = now();
            else if (now() - silent_since > 30) {
                fprintf(stderr, "rdkafka_client: nothing came for 30 s after %lld records\n", (long long)done);
                return 1;
            }
            for (ssize_t i = 0; i < got; i++) {
                if (!messages[i]->err) {
                    done++;
                    got_bytes += (int64_t)messages[i]->len;
                }
                message_destroy(messages[i]);
            }
        }
    }
    printf("{\"seconds\": %.6f, \"records\": %lld, \"bytes\": %lld, \"refused\": %lld}\n", now() - began, (long long)done,
           (long long)got_bytes, (long long)refused);
    fflush(stdout);
    _Exit(refused ? 1 : 0);
}
