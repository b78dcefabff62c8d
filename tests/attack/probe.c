/* The attacker's side of the escape suite: runs inside a sandbox and tries to reach what it must not.
 *
 * One line a probe on stdout: NAME, a tab, `held` or `BREACH`, a tab, what was seen. The exit code is 0
 * when every line was printed; the test beside it reads the lines. Run outside a sandbox (calibration), the
 * same program reports breaches: a probe that cannot fail proves nothing.
 *
 * What the host plants arrives as KEY=VALUE arguments, because the environment is itself under test:
 *   pid=N        a process on the host            file=PATH    a file on the host
 *   sock=PATH    a listening Unix socket there    abstract=S   an abstract one
 *   port=N       a listening loopback TCP port    shm=N        a System V segment's key
 *   canary=HEX   the executor's secret, in hex and reversed, so that this program itself does not hold it
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/klog.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static pid_t planted_pid;
static const char *planted_file, *planted_sock, *planted_abstract;
static int planted_port, planted_shm;
static unsigned char canary[256];
static size_t canary_len;

static void line(const char *name, int breach, const char *fmt, ...) {
    char detail[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(detail, sizeof detail, fmt, ap);
    va_end(ap);
    for (char *p = detail; *p; p++)
        if (*p == '\n' || *p == '\t') *p = ' ';
    printf("%s\t%s\t%s\n", name, breach ? "BREACH" : "held", detail);
    fflush(stdout);
}

/* A call that must fail: any success is a breach. */
static void must_fail(const char *name, long result) {
    int e = errno;
    line(name, result >= 0, result >= 0 ? "succeeded with %ld" : "failed: %s", result >= 0 ? (void *)result : (void *)strerror(e));
}

/* The same in a child, where success would disturb the probes after it, or failure may be a killing signal. */
#define IN_CHILD(name, expr)                                                        \
    do {                                                                            \
        fflush(stdout);                                                             \
        pid_t c_ = fork();                                                          \
        if (c_ == 0) {                                                              \
            errno = 0;                                                              \
            long r_ = (long)(expr);                                                 \
            _exit(r_ >= 0 ? 200 : (errno & 127));                                   \
        }                                                                           \
        int st_ = 0;                                                                \
        waitpid(c_, &st_, 0);                                                       \
        if (WIFSIGNALED(st_)) line(name, 0, "killed by signal %d", WTERMSIG(st_));  \
        else if (WEXITSTATUS(st_) == 200) line(name, 1, "succeeded");               \
        else line(name, 0, "failed: %s", strerror(WEXITSTATUS(st_)));               \
    } while (0)

static void must_not_open(const char *name, const char *path, int flags) {
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0600);
    int e = errno;
    struct stat st;
    int masked = fd >= 0 && !fstat(fd, &st) && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3); /* /dev/null over it */
    if (fd >= 0) close(fd);
    line(name, fd >= 0 && !masked, "%s: %s", path, masked ? "masked" : fd >= 0 ? "opened" : strerror(e));
}

/* ---- identity ---- */

static void status_line(const char *name, const char *key, const char *want) {
    char buf[4096] = {0};
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof buf - 1);
    if (fd >= 0) close(fd);
    char *at = n > 0 ? strstr(buf, key) : NULL;
    if (!at) { line(name, 1, "no %s in /proc/self/status", key); return; }
    at += strlen(key);
    at += strspn(at, " \t");
    char *end = strchr(at, '\n');
    if (end) *end = 0;
    line(name, strcmp(at, want) != 0, "%s %s", key, at);
}

static void identity(void) {
    line("uid", getuid() == 0 || geteuid() == 0 || getgid() == 0, "uid %d euid %d gid %d", getuid(), geteuid(), getgid());
    gid_t groups[64];
    int n = getgroups(64, groups);
    line("groups", n != 0, "%d supplementary groups", n);
    status_line("caps-inheritable", "CapInh:", "0000000000000000");
    status_line("caps-permitted", "CapPrm:", "0000000000000000");
    status_line("caps-effective", "CapEff:", "0000000000000000");
    status_line("caps-bounding", "CapBnd:", "0000000000000000");
    status_line("caps-ambient", "CapAmb:", "0000000000000000");
    status_line("no-new-privs", "NoNewPrivs:", "1");
    status_line("seccomp-filter", "Seccomp:", "2");
    IN_CHILD("setuid-0", setuid(0));
    IN_CHILD("setgid-0", setgid(0));
    gid_t zero = 0;
    IN_CHILD("setgroups", setgroups(1, &zero));
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2] = {{1u << CAP_SYS_ADMIN, 1u << CAP_SYS_ADMIN, 0}, {0, 0, 0}};
    IN_CHILD("capset", syscall(SYS_capset, &h, d));
    IN_CHILD("ambient-raise", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0));
    struct rlimit core;
    getrlimit(RLIMIT_CORE, &core);
    /* One byte holds no core, and unlike none it keeps the kernel from starting the machine's core handler. */
    line("core-dumps", core.rlim_max > 1, "RLIMIT_CORE hard %lu", (unsigned long)core.rlim_max);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_max += 1;
    IN_CHILD("raise-hard-rlimit", setrlimit(RLIMIT_NOFILE, &files));
    IN_CHILD("lower-nice", setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) - 1));
}

static void setuid_programs(void) {
    static const char *dirs[] = {"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec", NULL};
    int found = 0;
    for (int i = 0; dirs[i]; i++) {
        struct statvfs v;
        if (statvfs(dirs[i], &v) == 0 && !(v.f_flag & ST_NOSUID)) found++;
    }
    line("setuid-mounts", found, "%d system directories without nosuid", found);
    fflush(stdout);
    int p[2];
    if (pipe(p)) return;
    pid_t c = fork();
    if (c == 0) { /* su without a password is root's privilege: an effective uid of 0 would print it */
        dup2(p[1], 1);
        dup2(p[1], 2);
        int null = open("/dev/null", O_RDONLY);
        dup2(null, 0);
        execl("/usr/bin/su", "su", "-c", "id -u", (char *)NULL);
        _exit(127);
    }
    close(p[1]);
    char out[256] = {0};
    ssize_t n = read(p[0], out, sizeof out - 1);
    close(p[0]);
    int st;
    waitpid(c, &st, 0);
    line("setuid-exec", n > 0 && out[0] == '0', "su said: %s", n > 0 ? out : "nothing");
}

/* ---- processes ---- */

static void processes(void) {
    if (planted_pid) {
        char path[64];
        must_fail("host-process-signal", kill(planted_pid, 0));
        must_fail("host-process-pidfd", syscall(SYS_pidfd_open, planted_pid, 0));
        snprintf(path, sizeof path, "/proc/%d/environ", planted_pid);
        must_not_open("host-process-environ", path, O_RDONLY);
        char buf[8];
        struct iovec l = {buf, 8}, r = {(void *)&planted_pid, 8};
        must_fail("host-process-memory", process_vm_readv(planted_pid, &l, 1, &r, 1, 0));
    }
    DIR *d = opendir("/proc");
    int others = 0, seen = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        int pid = atoi(e->d_name);
        if (pid <= 0) continue;
        seen++;
        if (pid > 1 && pid != getpid() && pid != getppid()) others++;
    }
    if (d) closedir(d);
    line("proc-lists-only-own", others > 0 || seen == 0, "%d processes, %d of others", seen, others);
    must_not_open("init-environ", "/proc/1/environ", O_RDONLY);
    must_not_open("init-memory", "/proc/1/mem", O_RDWR);
    must_not_open("init-maps", "/proc/1/maps", O_RDONLY);
    must_not_open("init-fds", "/proc/1/fd", O_RDONLY | O_DIRECTORY);
    must_not_open("init-exe-write", "/proc/1/exe", O_WRONLY);
    must_not_open("init-root", "/proc/1/root/etc/passwd", O_RDONLY);
    must_not_open("init-cwd", "/proc/1/cwd/", O_RDONLY | O_DIRECTORY);
    IN_CHILD("init-ptrace", ptrace(PTRACE_ATTACH, 1, 0, 0));
    IN_CHILD("init-signal", kill(1, SIGTERM));
    IN_CHILD("ptrace-parent", ptrace(PTRACE_SEIZE, getppid(), 0, 0)); /* seizing does not stop it */
    IN_CHILD("ptrace-traceme", ptrace(PTRACE_TRACEME, 0, 0, 0));
    char byte;
    struct iovec l = {&byte, 1}, r = {&byte, 1};
    IN_CHILD("process-vm-readv", process_vm_readv(getppid(), &l, 1, &r, 1, 0));
    IN_CHILD("process-vm-writev", process_vm_writev(getppid(), &l, 1, &r, 1, 0));
    IN_CHILD("kcmp", syscall(SYS_kcmp, getpid(), 1, 0, 0, 0));
    int extra = 0;
    char list[256] = "";
    for (int fd = 3; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0) { extra++; snprintf(list + strlen(list), sizeof list - strlen(list), " %d", fd); }
    line("inherited-fds", extra > 0, "%d beyond 0, 1, 2:%s", extra, list);
}

/* ---- files ---- */

/* The sandbox may have made a directory of this name itself: then it is empty, or holds only the agent's home. */
static void must_be_absent_or_bare(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int e = errno;
    if (fd < 0) { line("host-path", 0, "%s: %s", path, strerror(e)); return; }
    DIR *d = fdopendir(fd);
    const char *found = d ? NULL : "a file";
    for (struct dirent *entry; d && (entry = readdir(d));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && strcmp(entry->d_name, "agent")) found = entry->d_name;
    line("host-path", found != NULL, "%s: %s", path, found ? found : "bare");
    if (d) closedir(d); else close(fd);
}

static void files(void) {
    if (planted_file) {
        char path[600];
        must_not_open("host-file", planted_file, O_RDONLY);
        snprintf(path, sizeof path, "/proc/self/root%s", planted_file);
        must_not_open("host-file-self-root", path, O_RDONLY);
        snprintf(path, sizeof path, "/proc/self/cwd/../../../../../..%s", planted_file);
        must_not_open("host-file-dotdot", path, O_RDONLY);
        snprintf(path, sizeof path, "/proc/self/task/%d/root%s", getpid(), planted_file);
        must_not_open("host-file-task-root", path, O_RDONLY);
    }
    static const char *absent[] = {"/root", "/home", "/boot", "/srv", "/mnt", "/media", "/opt/wheels", "/var/lib", "/var/run/docker.sock",
        "/run/docker.sock", "/run/systemd", "/run/dbus", "/etc/shadow", "/etc/sudoers", "/etc/ssh", "/etc/machine-id", "/old", NULL};
    for (int i = 0; absent[i]; i++) must_be_absent_or_bare(absent[i]);
    static const char *read_only[] = {"/usr/bin/x", "/usr/lib/x", "/etc/x", "/etc/ld.so.preload", "/etc/passwd", "/x", "/bin/x", "/proc/x", "/sys/x", "/run/x", NULL};
    for (int i = 0; read_only[i]; i++) must_not_open("system-write", read_only[i], O_WRONLY | O_CREAT);
    must_fail("chmod-system", chmod("/usr/bin/env", 0777));
    must_fail("rename-system", rename("/usr", "/usr2"));
    IN_CHILD("chroot", chroot("/tmp"));
    IN_CHILD("open-by-handle", ({ struct { struct file_handle h; char b[128]; } f = {0}; f.h.handle_bytes = 8; f.h.handle_type = 1; syscall(SYS_open_by_handle_at, AT_FDCWD, &f, O_RDONLY); }));
    IN_CHILD("mknod-disk", mknod("/tmp/disk", S_IFBLK | 0666, makedev(254, 0)));
    IN_CHILD("mknod-mem", mknod("/tmp/mem", S_IFCHR | 0666, makedev(1, 1)));
    IN_CHILD("fanotify", syscall(SYS_fanotify_init, 0, O_RDONLY));
    IN_CHILD("quotactl", syscall(SYS_quotactl, 0, "/dev/vda", 0, NULL));
}

static void devices(void) {
    static const char *paths[] = {"/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop0", "/dev/loop-control",
        "/dev/fuse", "/dev/net/tun", "/dev/kvm", "/dev/vsock", "/dev/vhost-net", "/dev/console", "/dev/tty0", "/dev/input", "/dev/mapper/control", "/dev/userfaultfd", "/dev/hugepages", "/dev/snd", "/dev/dri", NULL};
    for (int i = 0; paths[i]; i++) must_not_open("device", paths[i], O_RDONLY);
    static const char *allowed = " . .. null zero full random urandom tty ptmx pts shm fd stdin stdout stderr console mqueue ";
    DIR *d = opendir("/dev");
    char extra[256] = "";
    for (struct dirent *e; d && (e = readdir(d));) {
        char key[300];
        snprintf(key, sizeof key, " %s ", e->d_name);
        if (!strstr(allowed, key)) snprintf(extra + strlen(extra), sizeof extra - strlen(extra), " %.40s", e->d_name);
    }
    if (d) closedir(d);
    line("device-list", !d || extra[0], "beyond the list:%s", extra);
    IN_CHILD("tiocsti", ({ int m = open("/dev/ptmx", O_RDWR | O_NOCTTY); if (m >= 0) { int zero = 0; ioctl(m, TIOCSPTLCK, &zero); } int t = m < 0 ? -1 : open(ptsname(m), O_RDWR); char c = 'x'; t < 0 ? -1 : ioctl(t, TIOCSTI, &c); }));
    IN_CHILD("tioclinux", ({ char c = 3; ioctl(0, TIOCLINUX, &c); }));
}

/* ---- kernel surface ---- */

static void must_not_write(const char *name, const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));
    int e = errno;
    if (fd >= 0) close(fd);
    line(name, n > 0, "%s: %s", path, n > 0 ? "written" : strerror(e));
}

static void kernel_files(void) {
    static const char *masked[] = {"/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/sched_debug", 
        "/proc/sysrq-trigger", "/proc/acpi", "/proc/scsi", "/proc/kpagecount", "/proc/kpageflags", "/proc/vmallocinfo", NULL};
    char buf[64];
    for (int i = 0; masked[i]; i++) {
        int fd = open(masked[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof buf);
        if (fd >= 0) close(fd);
        line("proc-masked", n > 0, "%s: %zd bytes", masked[i], n);
    }
    static const char *settings[] = {"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/kernel/modprobe", "/proc/sys/vm/drop_caches", "/proc/sys/kernel/ns_last_pid",
        "/proc/sys/net/ipv4/ip_forward", "/proc/sys/user/max_user_namespaces", "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity",
        "/sys/kernel/uevent_helper", "/sys/kernel/mm/ksm/run", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/release_agent", "/sys/fs/cgroup/unified/cgroup.procs", NULL};
    for (int i = 0; settings[i]; i++) must_not_open("kernel-setting-write", settings[i], O_WRONLY);
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : write(fd, "-1000", 5);
    line("oom-score-lower", n > 0, "wrote %zd bytes", n);
    if (fd >= 0) close(fd);
    must_not_write("uid-map-write", "/proc/self/uid_map", "0 0 1\n");
    must_not_write("gid-map-write", "/proc/self/gid_map", "0 0 1\n");
    must_not_open("sys-debug", "/sys/kernel/debug", O_RDONLY);
    must_not_open("sys-security", "/sys/kernel/security/lockdown", O_RDONLY);
    must_not_open("sys-firmware", "/sys/firmware", O_RDONLY);
}

static void mounts(void) {
    IN_CHILD("mount-tmpfs", mount("none", "/tmp", "tmpfs", 0, ""));
    IN_CHILD("mount-bind", mount("/", "/tmp", NULL, MS_BIND, NULL));
    IN_CHILD("mount-remount-rw", mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL));
    IN_CHILD("mount-proc", mount("proc", "/tmp", "proc", 0, NULL));
    IN_CHILD("umount-proc", umount2("/proc", MNT_DETACH));
    IN_CHILD("pivot-root", syscall(SYS_pivot_root, "/tmp", "/tmp"));
    IN_CHILD("open-tree", syscall(428, AT_FDCWD, "/", 1));
    IN_CHILD("move-mount", syscall(429, AT_FDCWD, "/usr", AT_FDCWD, "/tmp", 0));
    IN_CHILD("fsopen", syscall(430, "tmpfs", 0));
    IN_CHILD("fspick", syscall(433, AT_FDCWD, "/", 0));
    struct { uint64_t set, clr, prop, ns; } attr = {0, 1, 0, 0};
    IN_CHILD("mount-setattr", syscall(442, AT_FDCWD, "/", 0, &attr, sizeof attr));
    IN_CHILD("swapon", syscall(SYS_swapon, "/tmp/x", 0));
}

static void namespaces(void) {
    static const struct { const char *name; int flag; } kinds[] = {{"unshare-user", CLONE_NEWUSER}, {"unshare-net", CLONE_NEWNET}, {"unshare-mount", CLONE_NEWNS},
        {"unshare-pid", CLONE_NEWPID}, {"unshare-ipc", CLONE_NEWIPC}, {"unshare-uts", CLONE_NEWUTS}, {"unshare-cgroup", CLONE_NEWCGROUP}, {"unshare-time", 0x80}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) IN_CHILD(kinds[i].name, unshare(kinds[i].flag));
    IN_CHILD("clone-user", ({ long r = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0); if (r == 0) _exit(0); r; }));
    uint64_t args[11] = {CLONE_NEWUSER, 0, 0, 0, SIGCHLD};
    IN_CHILD("clone3-user", ({ long r = syscall(SYS_clone3, args, 64); if (r == 0) _exit(0); r; }));
    int fd = open("/proc/1/ns/net", O_RDONLY | O_CLOEXEC);
    IN_CHILD("setns", setns(fd >= 0 ? fd : 0, 0));
    IN_CHILD("sethostname", sethostname("owned", 5));
    IN_CHILD("setdomainname", setdomainname("owned", 5));
}

static void system_calls(void) {
    char params[128] = {0};
    IN_CHILD("io-uring", syscall(SYS_io_uring_setup, 4, params));
    IN_CHILD("bpf", syscall(SYS_bpf, 5, params, 48));
    IN_CHILD("perf-event", syscall(SYS_perf_event_open, params, 0, -1, -1, 0));
    IN_CHILD("userfaultfd", syscall(SYS_userfaultfd, 0));
    IN_CHILD("add-key", syscall(SYS_add_key, "user", "probe", "x", 1, -3));
    IN_CHILD("request-key", syscall(SYS_request_key, "user", "probe", NULL, -3));
    IN_CHILD("keyctl-session", syscall(SYS_keyctl, 0, -3, 0));
    IN_CHILD("keyctl-join", syscall(SYS_keyctl, 1, NULL));
    IN_CHILD("kexec-load", syscall(SYS_kexec_load, 0, 0, NULL, 0));
    IN_CHILD("init-module", syscall(SYS_init_module, params, 1, ""));
    IN_CHILD("finit-module", syscall(SYS_finit_module, 0, "", 0));
    IN_CHILD("delete-module", syscall(SYS_delete_module, "x", 0));
    IN_CHILD("reboot", syscall(SYS_reboot, 0xfee1dead, 672274793, 0, NULL));
    IN_CHILD("acct", syscall(SYS_acct, "/tmp/acct"));
    IN_CHILD("iopl", syscall(SYS_iopl, 3));
    IN_CHILD("ioperm", syscall(SYS_ioperm, 0x80, 1, 1));
    IN_CHILD("syslog", klogctl(3, params, 64));
    IN_CHILD("vhangup", syscall(SYS_vhangup));
    IN_CHILD("lookup-dcookie", syscall(SYS_lookup_dcookie, 0ULL, params, 64));
    IN_CHILD("move-pages", syscall(SYS_move_pages, 1, 1UL, params, NULL, params, 0));
    IN_CHILD("migrate-pages", syscall(SYS_migrate_pages, 1, 1UL, params, params));
    IN_CHILD("pidfd-getfd", syscall(SYS_pidfd_getfd, 0, 0, 0));
    IN_CHILD("process-madvise", syscall(440, 0, params, 1, 3, 0));
    IN_CHILD("memfd-secret", syscall(447, 0));
    IN_CHILD("personality-32", ({ long r = syscall(SYS_personality, 0x0008UL); r; }));
    IN_CHILD("x32-call", syscall(0x40000000 | SYS_getpid));
#ifdef __x86_64__
    IN_CHILD("int80-call", ({ long r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20L), "b"(0L), "c"(0L), "d"(0L) : "memory"); if (r < 0) { errno = -r & 127; r = -1; } r; }));
#endif
    struct timespec t = {1000000000, 0};
    IN_CHILD("clock-settime", clock_settime(CLOCK_REALTIME, &t));
    struct timeval v = {1000000000, 0};
    IN_CHILD("settimeofday", settimeofday(&v, NULL));
    struct timex x = {.modes = ADJ_OFFSET};
    IN_CHILD("adjtimex", adjtimex(&x));
    IN_CHILD("clock-adjtime", syscall(SYS_clock_adjtime, CLOCK_REALTIME, &x));
}

/* ---- network ---- */

static void must_not_connect(const char *name, int family, const char *ip, int port) {
    int loopback = planted_port && port == planted_port;
    struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    inet_pton(AF_INET, ip, &a4.sin_addr);
    inet_pton(AF_INET6, ip, &a6.sin6_addr);
    int s = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) { line(name, 0, "no socket: %s", strerror(errno)); return; }
    int r = family == AF_INET ? connect(s, (void *)&a4, sizeof a4) : connect(s, (void *)&a6, sizeof a6);
    int e = errno;
    if (r < 0 && e == EINPROGRESS && loopback) { /* loopback answers at once, if late under load */
        struct pollfd p = {.fd = s, .events = POLLOUT};
        socklen_t size = sizeof e;
        poll(&p, 1, 5000);
        getsockopt(s, SOL_SOCKET, SO_ERROR, &e, &size);
        r = e ? -1 : 0;
    }
    /* Elsewhere a packet that leaves is already a breach: with no route the kernel refuses at once. */
    line(name, r == 0 || e == EINPROGRESS, "%s port %d: %s", ip, port, r == 0 ? "connected" : strerror(e));
    close(s);
}

static void must_not_send(const char *name, const char *ip, int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, ip, &a.sin_addr);
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ssize_t n = s < 0 ? -1 : sendto(s, "x", 1, 0, (void *)&a, sizeof a);
    int e = errno;
    line(name, n >= 0, "%s port %d: %s", ip, port, n >= 0 ? "sent" : strerror(e));
    if (s >= 0) close(s);
}

static void network(void) {
    must_not_send("dns-out", "198.51.100.53", 53);
    must_not_send("udp-broadcast", "255.255.255.255", 9);
    must_not_send("udp-multicast", "224.0.0.251", 5353);
    must_not_connect("tcp-out", AF_INET, "198.51.100.1", 443);
    must_not_connect("metadata-v4", AF_INET, "169.254.169.254", 80);
    must_not_connect("metadata-v6", AF_INET6, "fd00:ec2::254", 80);
    must_not_connect("private-10", AF_INET, "10.0.0.1", 80);
    must_not_connect("private-172", AF_INET, "172.17.0.1", 2375);
    must_not_connect("tcp6-out", AF_INET6, "2001:db8::1", 443);
    if (planted_port) {
        must_not_connect("host-loopback", AF_INET, "127.0.0.1", planted_port);
        must_not_connect("host-loopback-v6", AF_INET6, "::ffff:127.0.0.1", planted_port);
        must_not_connect("host-any", AF_INET, "0.0.0.0", planted_port);
    }
    static const struct { const char *name; int family, type, protocol; } sockets[] = {{"raw-icmp", AF_INET, SOCK_RAW, IPPROTO_ICMP}, {"raw-tcp", AF_INET, SOCK_RAW, IPPROTO_RAW},
        {"raw6", AF_INET6, SOCK_RAW, 58}, {"packet", 17, SOCK_RAW, 0x0300}, {"packet-dgram", 17, SOCK_DGRAM, 0x0300}, {"vsock", 40, SOCK_STREAM, 0}, {"alg", 38, SOCK_SEQPACKET, 0},
        {"bluetooth", 31, SOCK_RAW, 1}, {"can", 29, SOCK_RAW, 1}, {"netlink-audit", 16, SOCK_RAW, 9}, {"netlink-uevent", 16, SOCK_RAW, 15}, {"netlink-netfilter", 16, SOCK_RAW, 12},
        {"xdp", 44, SOCK_RAW, 0}, {"tipc", 30, SOCK_SEQPACKET, 0}, {"rds", 21, SOCK_SEQPACKET, 0}, {"key", 15, SOCK_RAW, 2}, {"sctp", AF_INET, SOCK_STREAM, 132}};
    for (size_t i = 0; i < sizeof sockets / sizeof *sockets; i++) IN_CHILD(sockets[i].name, socket(sockets[i].family, sockets[i].type, sockets[i].protocol));
}

static void unix_sockets(void) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (planted_sock) {
        snprintf(a.sun_path, sizeof a.sun_path, "%s", planted_sock);
        must_fail("host-unix-socket", connect(s, (void *)&a, sizeof a));
    }
    if (planted_abstract) {
        memset(&a, 0, sizeof a);
        a.sun_family = AF_UNIX;
        snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "%s", planted_abstract);
        must_fail("host-abstract-socket", connect(s, (void *)&a, offsetof(struct sockaddr_un, sun_path) + 1 + strlen(planted_abstract)));
    }
    close(s);
    if (planted_shm) must_fail("host-shared-memory", shmget(planted_shm, 0, 0));
}

/* ---- what leaks ---- */

static void environment(void) {
    static const char *allowed = " PATH HOME USER LOGNAME SHELL LANG TMPDIR TERM PWD HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy ALL_PROXY all_proxy SSL_CERT_FILE ";
    char extra[256] = "";
    for (char **e = environ; *e; e++) {
        char key[256];
        snprintf(key, sizeof key, " %.*s ", (int)strcspn(*e, "="), *e);
        if (!strstr(allowed, key)) snprintf(extra + strlen(extra), sizeof extra - strlen(extra), "%s", key);
    }
    line("environment", extra[0] != 0, "beyond the list:%s", extra);
}

static size_t scanned;

static int scan_file(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0) return 0;
    static unsigned char buf[1 << 16];
    size_t keep = 0, total = 0;
    int hit = 0;
    for (ssize_t n; !hit && total < (4u << 20) && (n = read(fd, buf + keep, sizeof buf - keep)) > 0; total += n) {
        size_t have = keep + n;
        hit = memmem(buf, have, canary, canary_len) != NULL;
        keep = have < canary_len ? have : canary_len - 1;
        memmove(buf, buf + have - keep, keep);
    }
    scanned++;
    close(fd);
    return hit;
}

static void scan_tree(const char *dir, int depth, char *hits, size_t cap) {
    DIR *d = depth > 6 ? NULL : opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[1024];
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || scanned > 20000) continue;
        if (snprintf(path, sizeof path, "%s/%s", dir, e->d_name) >= (int)sizeof path) continue;
        struct stat st;
        if (lstat(path, &st)) continue;
        if (S_ISDIR(st.st_mode)) scan_tree(path, depth + 1, hits, cap);
        else if (S_ISREG(st.st_mode) && scan_file(path)) snprintf(hits + strlen(hits), cap - strlen(hits), " %s", path);
    }
    if (d) closedir(d);
}

static void secrets(void) {
    if (!canary_len) return;
    char hits[300] = "";
    static const char *roots[] = {"/tmp", "/proc", "/run", "/dev", "/etc", "/var", "/workspace", "/home", "/sys", NULL};
    for (int i = 0; roots[i]; i++) scan_tree(roots[i], 0, hits, sizeof hits);
    line("executor-secrets", hits[0] != 0, "%zu files read, found in:%s", scanned, hits);
}

static void read_canary(const char *hex) { /* in hex, last byte first */
    canary_len = strlen(hex) / 2;
    for (size_t i = 0; i < canary_len; i++) {
        unsigned byte = 0;
        sscanf(hex + 2 * i, "%2x", &byte);
        canary[canary_len - 1 - i] = byte;
    }
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "pid=", 4)) planted_pid = atoi(argv[i] + 4);
        if (!strncmp(argv[i], "file=", 5)) planted_file = argv[i] + 5;
        if (!strncmp(argv[i], "sock=", 5)) planted_sock = argv[i] + 5;
        if (!strncmp(argv[i], "abstract=", 9)) planted_abstract = argv[i] + 9;
        if (!strncmp(argv[i], "port=", 5)) planted_port = atoi(argv[i] + 5);
        if (!strncmp(argv[i], "shm=", 4)) planted_shm = atoi(argv[i] + 4);
        if (!strncmp(argv[i], "canary=", 7)) read_canary(argv[i] + 7);
    }
    environment();
    identity();
    setuid_programs();
    processes();
    files();
    devices();
    kernel_files();
    mounts();
    namespaces();
    system_calls();
    network();
    unix_sockets();
    secrets();
    return 0;
}
