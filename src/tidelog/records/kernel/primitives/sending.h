/* Threads that send bytes to sockets, for sending.pxd. They never need the interpreter, so nobody who holds it delays them.

   A job is a list of buffers for one non-blocking socket. A thread sends up to a turn's bytes of it, and then puts the rest behind
   the jobs that wait, so that every socket gets its share. A job is done when all of it is sent, when the socket takes no more, or
   when sending fails. Done jobs are listed, and a byte in a pipe wakes whoever collects them.

   Buffers may be parts of mapped files. The first threads only send what is in memory. Jobs that need the disk are left to the
   other threads, which wait for it: so a slow disk never delays what is in memory. A part of a file that no longer exists makes
   sendmsg fail with EFAULT; that is no fatal signal, because the kernel does the reading.

   The pool is freed by whoever leaves last: the owner, or a thread that was still waiting for its disk when the owner left. */

#ifndef TIDELOG_SENDING_H
#define TIDELOG_SENDING_H

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "wake_pipe.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* Python ignores SIGPIPE. */
#endif
#if defined(__linux__) && !defined(MADV_POPULATE_READ)
#define MADV_POPULATE_READ 22
#endif

#define TIDELOG_TURN_BYTES (1 << 20)
#define TIDELOG_BIG_BYTES (32 * 1024)      /* Smaller buffers are never mapped files. */
#define TIDELOG_AHEAD_BYTES (4 << 20)      /* How far a reader from the disk is read ahead of. */
#define TIDELOG_MOST_PAGES 1024

typedef struct tidelog_job {
    struct tidelog_job *next;
    int64_t key;
    int fd;           /* -1: only read the buffers into memory. */
    int error;
    size_t sent;
    uintptr_t limit;  /* Where the mapping of the last large buffer ends. */
    int first, count; /* The buffers that are left. */
    struct iovec buffers[];
} tidelog_job;

typedef struct {
    tidelog_job *first, *last;
    pthread_cond_t come;
} tidelog_queue;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t left;
    tidelog_queue warm, cold;
    tidelog_job *done;
    int users;        /* The threads, and the owner. */
    int is_closing;
    int wake_fds[2];
} tidelog_pool;

static void tidelog_put(tidelog_queue *queue, tidelog_job *job)
{
    job->next = NULL;
    if (queue->last)
        queue->last->next = job;
    else
        queue->first = job;
    queue->last = job;
    pthread_cond_signal(&queue->come);
}

static void tidelog_leave(tidelog_pool *pool)
{
    int users = --pool->users;
    pthread_cond_broadcast(&pool->left);
    pthread_mutex_unlock(&pool->lock);
    if (users)
        return;
    tidelog_queue *queues[2] = {&pool->warm, &pool->cold};
    for (int i = 0; i < 2; i++)
        for (tidelog_job *job = queues[i]->first, *next; job; job = next) {
            next = job->next;
            free(job);
        }
    for (tidelog_job *job = pool->done, *next; job; job = next) {
        next = job->next;
        free(job);
    }
    tidelog_wake_close(pool->wake_fds);
    free(pool);
}

static uintptr_t tidelog_page(const void *at)
{
    return (uintptr_t)at & ~(uintptr_t)(sysconf(_SC_PAGESIZE) - 1);
}

/* Whether a buffer is in memory; the system may not tell, which counts as yes. */
static int tidelog_is_in_memory(const void *at, size_t size)
{
#ifdef __linux__
    unsigned char pages[TIDELOG_MOST_PAGES];
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = tidelog_page(at), end = (uintptr_t)at + size;
    while (start < end) {
        size_t part = end - start < page_bytes * TIDELOG_MOST_PAGES ? end - start : page_bytes * TIDELOG_MOST_PAGES;
        size_t count = (part + page_bytes - 1) / page_bytes;
        if (mincore((void *)start, part, pages))
            return 1;
        for (size_t i = 0; i < count; i++)
            if (!(pages[i] & 1))
                return 0;
        start += count * page_bytes;
    }
#endif
    return 1;
}

/* Return the end of a mapped file's part if what a reader will want behind it is still on the disk, otherwise 0. The mapping ends
   at `limit`: behind it may be something else. */
static uintptr_t tidelog_ahead(const void *at, size_t size, uintptr_t limit)
{
#ifdef __linux__
    unsigned char page[1];
    uintptr_t end = tidelog_page((const char *)at + size);
    uintptr_t middle = tidelog_page((void *)(end + TIDELOG_AHEAD_BYTES / 2));
    if (middle < limit && !mincore((void *)middle, 1, page) && !(page[0] & 1))
        return end;
#endif
    return 0;
}

/* Have the disk read what a reader will want next: the mapped file behind the last large buffer. */
static void tidelog_read_ahead(const tidelog_job *job)
{
#ifdef __linux__
    const struct iovec *buffer = job->buffers + job->count - 1;
    while (buffer >= job->buffers + job->first && buffer->iov_len < TIDELOG_BIG_BYTES)
        buffer--;
    if (buffer < job->buffers + job->first)
        return;
    uintptr_t end = tidelog_ahead(buffer->iov_base, buffer->iov_len, job->limit);
    if (end)
        madvise((void *)end, job->limit - end < TIDELOG_AHEAD_BYTES ? job->limit - end : TIDELOG_AHEAD_BYTES, MADV_WILLNEED);
#endif
}

/* Wait until the first `most` bytes of a job are in memory. */
static void tidelog_read(tidelog_job *job, size_t most)
{
#ifdef __linux__
    for (int pass = 0; pass < 2; pass++) {
        size_t size = 0;
        for (int i = job->first; i < job->count && size < most; i++) {
            struct iovec *one = job->buffers + i;
            size_t part = one->iov_len < most - size ? one->iov_len : most - size;
            size += one->iov_len;
            if (part < TIDELOG_BIG_BYTES)
                continue;
            uintptr_t start = tidelog_page(one->iov_base);
            size_t length = (uintptr_t)one->iov_base + part - start;
            if (!pass)
                madvise((void *)start, length, MADV_WILLNEED);
            else if (madvise((void *)start, length, MADV_POPULATE_READ) && errno == EINVAL)
                return; /* Before Linux 5.14: sending reads it. */
        }
    }
#endif
}

static int tidelog_needs_disk(tidelog_job *job, size_t most)
{
    size_t size = 0;
    for (int i = job->first; i < job->count && size < most; i++) {
        struct iovec *one = job->buffers + i;
        size_t part = one->iov_len < most - size ? one->iov_len : most - size;
        size += one->iov_len;
        if (part >= TIDELOG_BIG_BYTES && !tidelog_is_in_memory(one->iov_base, part))
            return 1;
    }
    return 0;
}

/* Send up to `most` bytes. Return whether the job is done. */
static int tidelog_send(tidelog_job *job, size_t most)
{
    while (job->first < job->count) {
        if (!most)
            return 0;
        /* One call takes `most` bytes: cut the last buffer, and restore it afterwards. */
        size_t size = 0;
        int end = job->first;
        while (end < job->count && size < most)
            size += job->buffers[end++].iov_len;
        size_t beyond = size > most ? size - most : 0;
        job->buffers[end - 1].iov_len -= beyond;
        struct msghdr message;
        memset(&message, 0, sizeof message);
        message.msg_iov = job->buffers + job->first;
        message.msg_iovlen = end - job->first;
        ssize_t count = sendmsg(job->fd, &message, MSG_NOSIGNAL);
        int error = errno;
        job->buffers[end - 1].iov_len += beyond;
        if (count < 0) {
            if (error == EINTR)
                continue;
            if (error != EAGAIN && error != EWOULDBLOCK)
                job->error = error;
            return 1;
        }
        job->sent += (size_t)count;
        most -= (size_t)count;
        while (count) {
            struct iovec *one = job->buffers + job->first;
            size_t part = (size_t)count < one->iov_len ? (size_t)count : one->iov_len;
            one->iov_base = (char *)one->iov_base + part;
            one->iov_len -= part;
            count -= (ssize_t)part;
            if (!one->iov_len)
                job->first++;
        }
        while (job->first < job->count && !job->buffers[job->first].iov_len)
            job->first++;
    }
    return 1;
}

static void *tidelog_serve(tidelog_pool *pool, tidelog_queue *queue)
{
    int is_cold = queue == &pool->cold;
    pthread_mutex_lock(&pool->lock);
    while (1) {
        while (!queue->first && !pool->is_closing)
            pthread_cond_wait(&queue->come, &pool->lock);
        if (pool->is_closing)
            break;
        tidelog_job *job = queue->first;
        queue->first = job->next;
        if (!queue->first)
            queue->last = NULL;
        pthread_mutex_unlock(&pool->lock);
        int is_done = 0, needs_disk = 0;
        if (is_cold)
            tidelog_read(job, TIDELOG_TURN_BYTES);
        else
            needs_disk = job->fd < 0 || tidelog_needs_disk(job, TIDELOG_TURN_BYTES);
        tidelog_read_ahead(job);
        if (!needs_disk)
            is_done = job->fd < 0 || tidelog_send(job, TIDELOG_TURN_BYTES);
        pthread_mutex_lock(&pool->lock);
        if (is_done) {
            job->next = pool->done;
            int was_empty = !pool->done;
            pool->done = job;
            if (was_empty)
                tidelog_wake(pool->wake_fds);
        } else {
            tidelog_put(needs_disk ? &pool->cold : &pool->warm, job);
        }
    }
    tidelog_leave(pool);
    return NULL;
}

static void *tidelog_serve_warm(void *pool)
{
    return tidelog_serve(pool, &((tidelog_pool *)pool)->warm);
}

static void *tidelog_serve_cold(void *pool)
{
    return tidelog_serve(pool, &((tidelog_pool *)pool)->cold);
}

/* Start a pool; NULL if the system has no memory, descriptor or thread for it. */
static tidelog_pool *tidelog_pool_open(int warm, int cold)
{
    tidelog_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    if (!tidelog_wake_open(pool->wake_fds)) {
        free(pool);
        return NULL;
    }
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->left, NULL);
    pthread_cond_init(&pool->warm.come, NULL);
    pthread_cond_init(&pool->cold.come, NULL);
    pool->users = 1;
    int begun[2] = {0, 0};
    for (int i = 0; i < warm + cold; i++) {
        pthread_t thread;
        pthread_mutex_lock(&pool->lock);
        if (!pthread_create(&thread, NULL, i < warm ? tidelog_serve_warm : tidelog_serve_cold, pool)) {
            pool->users++;
            begun[i >= warm]++;
            pthread_detach(thread);
        }
        pthread_mutex_unlock(&pool->lock);
    }
    if (begun[0] && begun[1])
        return pool;
    pthread_mutex_lock(&pool->lock);
    pool->is_closing = 1;
    pthread_cond_broadcast(&pool->warm.come);
    pthread_cond_broadcast(&pool->cold.come);
    tidelog_leave(pool);
    return NULL;
}

static tidelog_job *tidelog_job_new(int64_t key, int fd, int count)
{
    tidelog_job *job = calloc(1, sizeof *job + (size_t)count * sizeof(struct iovec));
    if (job) {
        job->key = key;
        job->fd = fd;
    }
    return job;
}

static void tidelog_job_add(tidelog_job *job, const void *data, size_t size, size_t limit)
{
    if (size >= TIDELOG_BIG_BYTES)
        job->limit = limit;
    if (size) {
        job->buffers[job->count].iov_base = (void *)data;
        job->buffers[job->count++].iov_len = size;
    }
}

static void tidelog_pool_put(tidelog_pool *pool, tidelog_job *job)
{
    pthread_mutex_lock(&pool->lock);
    tidelog_put(&pool->warm, job);
    pthread_mutex_unlock(&pool->lock);
}

/* Return the jobs that are done, as a list; the caller frees each. */
static tidelog_job *tidelog_pool_take(tidelog_pool *pool)
{
    tidelog_wake_forget(pool->wake_fds);
    pthread_mutex_lock(&pool->lock);
    tidelog_job *done = pool->done;
    pool->done = NULL;
    pthread_mutex_unlock(&pool->lock);
    return done;
}

/* Leave the pool; begin no more jobs. Return whether all threads have ended within so many seconds. */
static int tidelog_pool_close(tidelog_pool *pool, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t at = (int64_t)until.tv_nsec + (int64_t)(seconds * 1e9);
    until.tv_sec += at / 1000000000;
    until.tv_nsec = at % 1000000000;
    pthread_mutex_lock(&pool->lock);
    pool->is_closing = 1;
    pthread_cond_broadcast(&pool->warm.come);
    pthread_cond_broadcast(&pool->cold.come);
    int error = 0;
    while (pool->users > 1 && !error)
        error = pthread_cond_timedwait(&pool->left, &pool->lock, &until);
    int is_over = pool->users == 1;
    tidelog_leave(pool);
    return is_over;
}

#endif
