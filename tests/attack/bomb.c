/* What takes more than its share, one kind an argument: fork, memory, disk, files, log, deaf.
 * Each says on stderr how far it came; none ends by itself before its limit, but `files` and `log`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Every process forks until the limit says no; whoever is refused reports and the first one fails. */
static int fork_bomb(void) {
    for (int n = 0;; n++) {
        pid_t child = fork();
        if (child < 0) {
            fprintf(stderr, "fork refused after %d: %s\n", n, strerror(errno));
            return 1;
        }
        if (child == 0) {
            for (;;) {
                if (fork() < 0) usleep(1000);
            }
        }
    }
}

/* A grandchild takes the memory, so that the supervisor inside must notice more than its own child (case 57). */
static int memory_bomb(void) {
    pid_t child = fork();
    if (child == 0) {
        if (fork() == 0) {
            for (;;) {
                char *block = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                if (block == MAP_FAILED) _exit(3);
                memset(block, 1, 1 << 20);
            }
        }
        int status = 0;
        wait(&status);
        _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int disk_bomb(void) {
    static char block[1 << 20];
    memset(block, 'x', sizeof block);
    int fd = open("filler", O_CREAT | O_WRONLY, 0644);
    long long total = 0;
    for (;;) {
        ssize_t n = write(fd, block, sizeof block);
        if (n < 0) {
            fprintf(stderr, "%s after %lld bytes\n", strerror(errno), total);
            return 1;
        }
        total += n;
    }
}

static int many_files(long count) {
    for (long i = 0; i < count; i++) {
        char path[64];
        if (i % 1000 == 0) {
            snprintf(path, sizeof path, "d%ld", i / 1000);
            mkdir(path, 0755);
        }
        snprintf(path, sizeof path, "d%ld/f%ld", i / 1000, i);
        int fd = open(path, O_CREAT | O_WRONLY, 0644);
        if (fd < 0 || write(fd, "x", 1) != 1) {
            fprintf(stderr, "file %ld: %s\n", i, strerror(errno));
            return 1;
        }
        close(fd);
    }
    return 0;
}

static int log_bomb(long long bytes) {
    static char block[1 << 16];
    for (size_t i = 0; i < sizeof block; i++) block[i] = i % 100 == 99 ? '\n' : 'l';
    while (bytes > 0) {
        ssize_t n = write(1, block, bytes < (long long)sizeof block ? (size_t)bytes : sizeof block);
        if (n < 0) return 1;
        bytes -= n;
    }
    return 0;
}

/* Ignores all that can be ignored, in a session of its own, twice forked, holding its output open. */
static int deaf(void) {
    for (int s = 1; s < 65; s++) signal(s, SIG_IGN);
    if (fork() == 0) {
        setsid();
        if (fork() == 0)
            for (;;) pause();
        _exit(0);
    }
    fprintf(stderr, "deaf\n");
    for (;;) pause();
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "";
    long long n = argc > 2 ? atoll(argv[2]) : 0;
    if (!strcmp(kind, "fork")) return fork_bomb();
    if (!strcmp(kind, "memory")) return memory_bomb();
    if (!strcmp(kind, "disk")) return disk_bomb();
    if (!strcmp(kind, "files")) return many_files(n);
    if (!strcmp(kind, "log")) return log_bomb(n);
    if (!strcmp(kind, "deaf")) return deaf();
    fprintf(stderr, "bomb: fork, memory, disk, files N, log BYTES or deaf\n");
    return 2;
}
