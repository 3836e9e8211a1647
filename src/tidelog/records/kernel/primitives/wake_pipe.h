/* A pipe that wakes whoever collects something: for sending.h and send_queue.h. */

#ifndef TIDELOG_WAKE_PIPE_H
#define TIDELOG_WAKE_PIPE_H

#include <fcntl.h>
#include <unistd.h>

/* Open a pipe that never blocks. Return 0 if the system has no descriptors left. */
static int tidelog_wake_open(int fds[2])
{
    if (pipe(fds))
        return 0;
    for (int i = 0; i < 2; i++) {
        fcntl(fds[i], F_SETFD, FD_CLOEXEC);
        fcntl(fds[i], F_SETFL, O_NONBLOCK);
    }
    return 1;
}

static void tidelog_wake(const int fds[2])
{
    if (write(fds[1], "", 1) < 0) {
        /* The pipe is full of wake-ups already. */
    }
}

/* Forget the wake-ups so far. */
static void tidelog_wake_forget(const int fds[2])
{
    char bytes[64];
    while (read(fds[0], bytes, sizeof bytes) > 0) {
    }
}

static void tidelog_wake_close(const int fds[2])
{
    close(fds[0]);
    close(fds[1]);
}

#endif
