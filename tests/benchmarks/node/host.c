/* One static program under several names, so that a simulated host needs little memory:
 *   bench-init        process 1 of a host: its disk, /proc, its name and its loopback; then boot.sh, and it reaps what ends
 *   bench-shell       runs the commands of SSH sessions; or records them; or answers as recorded (README.md, replay)
 *   kubelet           answers /healthz on 127.0.0.1:10248; as a question (--version, --help, --max-pods=-1) it answers as recorded
 *   kube-apiserver, kube-controller-manager, kube-scheduler, etcd    do nothing; what they serve comes from the stand-in server
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Characters of the word in the marks of an answer. */
#define WORD 16

static void fail(const char *what) {
    fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void write_file(const char *path, const char *data, size_t length) {
    int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (out < 0 || write(out, data, length) != (ssize_t)length) fail(path);
    close(out);
}

static void copy(const char *from, const char *to) {
    static char data[1 << 20];
    int in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0) fail(from);
    ssize_t length = read(in, data, sizeof data);
    close(in);
    write_file(to, data, length < 0 ? 0 : (size_t)length);
}

/* 127.0.0.1, and the network of the nodes as local addresses: whatever node is addressed, this host's own loopback answers. */
static void loopback(const char *address, const char *mask) {
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq request;
    struct sockaddr_in *in = (struct sockaddr_in *)&request.ifr_addr;
    memset(&request, 0, sizeof request);
    strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP | IFF_RUNNING | IFF_LOOPBACK;
    if (ioctl(s, SIOCSIFFLAGS, &request) < 0) fail("lo");
    memset(&request, 0, sizeof request);
    strcpy(request.ifr_name, "lo:0");
    in->sin_family = AF_INET;
    inet_pton(AF_INET, address, &in->sin_addr);
    if (ioctl(s, SIOCSIFADDR, &request) < 0) fail("the node's address");
    inet_pton(AF_INET, mask, &in->sin_addr);
    if (ioctl(s, SIOCSIFNETMASK, &request) < 0) fail("the node's network");
    close(s);
}

/* bench-init NAME ADDRESS MASK LOWER UPPER WORK ROOT */
static int init(char **argv) {
    char options[4096];
    if (sethostname(argv[1], strlen(argv[1])) < 0) fail("hostname");
    loopback(argv[2], argv[3]);
    if (mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) fail("private mounts");
    snprintf(options, sizeof options, "lowerdir=%s,upperdir=%s,workdir=%s", argv[4], argv[5], argv[6]);
    if (mount("overlay", argv[7], "overlay", 0, options) < 0) fail("overlay");
    if (chdir(argv[7]) < 0) fail(argv[7]);
    if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0) fail("/proc");
    const char *devices[] = {"null", "zero", "full", "random", "urandom", "tty"};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        char from[64], to[64];
        snprintf(from, sizeof from, "/dev/%s", devices[i]);
        snprintf(to, sizeof to, "dev/%s", devices[i]);
        close(open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
        if (mount(from, to, NULL, MS_BIND, NULL) < 0) fail(to);
    }
    if (syscall(SYS_pivot_root, ".", ".") < 0) fail("pivot_root");
    if (umount2(".", MNT_DETACH) < 0) fail("the machine's own root");
    if (chdir("/") < 0) fail("/");
    pid_t boot = fork();
    if (boot == 0) {
        char *words[] = {"sh", "/opt/bench/boot.sh", argv[1], NULL};
        char *environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL};
        setsid();
        execve("/bin/sh", words, environment);
        _exit(127);
    }
    for (;;)
        if (wait(NULL) < 0) pause();
}

static const char *flag(char **argv, const char *name) {
    const char *found = NULL;
    size_t length = strlen(name);
    for (; *argv; argv++)
        if (!strncmp(*argv, name, length) && (*argv)[length] == '=') found = *argv + length + 1;
    return found;
}

/* What the running kubelet has read, for the stand-in server. */
static void note_start(int argc, char **argv) {
    const char *config = flag(argv, "--config");
    char words[8192];
    size_t used = 0;
    if (config) copy(config, "/run/bench/kubelet.config.new");
    for (int i = 0; i < argc; i++) used += (size_t)snprintf(words + used, sizeof words - used, "%s\n", argv[i]);
    write_file("/run/bench/kubelet.argv", words, used);
    if (config) rename("/run/bench/kubelet.config.new", "/run/bench/kubelet.config");
}

static void serve_health(void) {
    const char *answer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(10248), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int on = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 16) < 0) fail("127.0.0.1:10248");
    for (;;) {
        char request[4096];
        int peer = accept(listener, NULL, NULL);
        if (peer < 0) continue;
        if (read(peer, request, sizeof request) > 0 && write(peer, answer, strlen(answer)) > 0) shutdown(peer, SHUT_WR);
        while (read(peer, request, sizeof request) > 0) continue;
        close(peer);
    }
}

/* The number of this command among those of the run. */
static int next_number(void) {
    char text[16] = {0};
    int number, file = open("/run/bench/sequence", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || flock(file, LOCK_EX) < 0) fail("/run/bench/sequence");
    if (pread(file, text, sizeof text - 1, 0) < 0) fail("/run/bench/sequence");
    number = atoi(text) + 1;
    int length = snprintf(text, sizeof text, "%d\n", number);
    if (pwrite(file, text, (size_t)length, 0) < 0) fail("/run/bench/sequence");
    close(file);
    return number;
}

static void put(int to, const char *data, size_t length) {
    while (length) {
        ssize_t done = write(to, data, length);
        if (done <= 0) return;
        data += done, length -= (size_t)done;
    }
}

static void put_file(int to, const char *path) {
    char data[65536];
    ssize_t length;
    int in = open(path, O_RDONLY | O_CLOEXEC);
    while (in >= 0 && (length = read(in, data, sizeof data)) > 0) put(to, data, (size_t)length);
}

/* daytwo frames each answer by marks with a word of its own (roles/engine/framed.py): a recorded answer gets the word of the command. */
static void put_answer(int to, const char *path, const char *command) {
    static const char *marks[] = {"daytwo-answer-", "daytwo-end-"};
    const char *word = strstr(command, "daytwo-%s-");
    struct stat status;
    int in = open(path, O_RDONLY | O_CLOEXEC);
    if (in < 0 || fstat(in, &status) < 0 || !status.st_size) return;
    char *data = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, in, 0), *end = data + status.st_size;
    if (data == MAP_FAILED) fail(path);
    word = word && strlen(word) >= 10 + WORD ? word + 10 : NULL;
    for (int i = 0; word && i < 2; i++) {
        size_t length = strlen(marks[i]);
        for (char *at = data; (at = memmem(at, (size_t)(end - at), marks[i], length)); at += length)
            if ((size_t)(end - at) >= length + WORD) memcpy(at + length, word, WORD);
    }
    put(to, data, (size_t)status.st_size);
}

/* Run a command. Keep what it wrote, its status, how many bytes of input it was sent, and the time of the processor that it took. */
static int record(const char *command, const char *prefix) {
    int pipes[3][2], kept[3] = {-1, -1, -1};
    long taken = 0;
    char path[256], data[65536];
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s.%d", prefix, i);
        if (pipe2(pipes[i], O_CLOEXEC) < 0) fail("pipe");
        if (i && (kept[i] = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) < 0) fail(path);
    }
    pid_t child = fork();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        for (int i = 0; i < 3; i++) dup2(pipes[i][i > 0], i);
        execl("/bin/bash", "bash", "-c", command, NULL);
        _exit(127);
    }
    close(pipes[0][0]);
    struct pollfd polled[3] = {{.fd = 0, .events = POLLIN}};
    for (int i = 1; i < 3; i++) {
        close(pipes[i][1]);
        polled[i] = (struct pollfd){.fd = pipes[i][0], .events = POLLIN};
    }
    while (polled[1].fd >= 0 || polled[2].fd >= 0) {
        if (poll(polled, 3, -1) < 0) break;
        for (int i = 0; i < 3; i++) {
            if (polled[i].fd < 0 || !polled[i].revents) continue;
            ssize_t length = read(polled[i].fd, data, sizeof data);
            if (length <= 0) polled[i].fd = -1;
            if (i == 0 && length <= 0) close(pipes[0][1]);
            else if (i == 0) put(pipes[0][1], data, (size_t)length), taken += length;
            else if (length > 0) put(i, data, (size_t)length), put(kept[i], data, (size_t)length);
        }
    }
    int status = 0;
    struct rusage used;
    wait4(child, &status, 0, &used);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    long microseconds = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000L + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
    int length = snprintf(data, sizeof data, "%d %ld %ld\n", code, microseconds, taken);
    snprintf(path, sizeof path, "%s.done", prefix);
    write_file(path, data, (size_t)length);
    return code;
}

/* Take what comes in, wait for as long as the command needed the processor, and answer as it did. False if nothing was recorded. */
static int play(const char *command, const char *prefix, int *code) {
    char path[256], text[65536] = {0};
    long microseconds = 0, awaited = 0;
    ssize_t length;
    snprintf(path, sizeof path, "%s.done", prefix);
    int in = open(path, O_RDONLY | O_CLOEXEC);
    if (in < 0 || read(in, text, 63) <= 0 || sscanf(text, "%d %ld %ld", code, &microseconds, &awaited) != 3) return 0;
    struct pollfd polled = {.fd = 0, .events = POLLIN};
    while (awaited > 0 && poll(&polled, 1, 5000) > 0 && (length = read(0, text, sizeof text)) > 0) awaited -= length;
    struct timespec pause = {microseconds / 1000000, microseconds % 1000000 * 1000};
    nanosleep(&pause, NULL);
    for (int i = 1; i <= 2; i++) {
        snprintf(path, sizeof path, "%s.%d", prefix, i);
        put_answer(i, path, command);
    }
    return 1;
}

/* What sshd starts for each session. /run/bench/mode says `record NAME` or `play NAME`; nothing: commands are run as always. */
static int shell(void) {
    const char *command = getenv("SSH_ORIGINAL_COMMAND");
    char mode[64] = {0}, what[16] = {0}, name[32] = {0}, prefix[128];
    int code = 0, in = open("/run/bench/mode", O_RDONLY | O_CLOEXEC);
    if (!command) return execl("/bin/bash", "-bash", NULL);
    if (in >= 0 && read(in, mode, sizeof mode - 1) > 0 && sscanf(mode, "%15s %31s", what, name) == 2) {
        snprintf(prefix, sizeof prefix, "/run/bench/records.%s.%d", name, next_number());
        if (!strcmp(what, "record")) return record(command, prefix);
        if (!strcmp(what, "play") && play(command, prefix, &code)) return code;
    }
    return execl("/bin/bash", "bash", "-c", command, NULL);
}

int main(int argc, char **argv) {
    const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    char self[256] = {0};
    if (readlink("/proc/self/exe", self, sizeof self - 1) > 0 && strrchr(self, '/')) name = strrchr(self, '/') + 1;
    if (!strcmp(name, "bench-init") && argc == 8) return init(argv);
    if (!strcmp(name, "bench-shell")) return shell();
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--version", 9)) {
            puts("Kubernetes " VERSION);
            return 0;
        }
        if (!strcmp(argv[i], "--help")) {
            put_file(1, "/opt/bench/kubelet-help.txt");
            return 0;
        }
        if (!strcmp(argv[i], "--max-pods=-1")) {
            fputs("E0101 00:00:00.000000 1 run.go:72] \"command failed\" err=\"failed to validate kubelet configuration, error: "
                  "invalid configuration: maxPods (--max-pods) -1 must not be a negative number, path: &TypeMeta{Kind:,APIVersion:,}\"\n",
                  stderr);
            return 1;
        }
    }
    if (!strcmp(name, "kubelet")) {
        note_start(argc, argv);
        serve_health();
    }
    for (;;) pause();
}
