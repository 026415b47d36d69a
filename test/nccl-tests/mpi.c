// SPDX-License-Identifier: Apache-2.0
// MPI's collectives over one TCP connection for each pair of processes. `launch` starts the
// processes; they find each other through files with their port numbers in MPISHIM_DIR.
#include "mpi.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_RANKS 64
#define MAX_COMMS 64
#define MEET_MS   60000 // how long the other processes may take to start

struct comm { // members: ranks of the world, in the order of this communicator
    int used, rank, size, calls;
    int members[MAX_RANKS];
};

// Before the data of a collective, so that processes that disagree about the call find out.
struct head {
    uint32_t comm, call;
    uint64_t bytes;
};

static struct comm comms[MAX_COMMS];
static int sockets[MAX_RANKS];
static int initialized;

#define WORLD (&comms[MPI_COMM_WORLD])

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fprintf(stderr, "mpi shim: rank %d: ", WORLD->rank);
    (void)vfprintf(stderr, format, args);
    (void)fputc('\n', stderr);
    va_end(args);
    _exit(1); // the launcher ends the others
}

static int number(const char *name, int lo, int hi)
{
    const char *text = getenv(name);
    char *end = NULL;
    long v = text ? strtol(text, &end, 10) : -1;
    if (!text || *end || end == text || v < lo || v > hi) {
        die("%s is not set to a number from %d to %d: start with the launcher", name, lo, hi);
    }
    return (int)v;
}

static void write_all(int peer, const void *data, size_t n)
{
    const char *p = data;
    while (n > 0) {
        ssize_t k = send(sockets[peer], p, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k <= 0) {
            die("cannot send to rank %d: %s", peer, strerror(errno));
        }
        p += k;
        n -= (size_t)k;
    }
}

static void read_all(int peer, void *data, size_t n)
{
    char *p = data;
    while (n > 0) {
        ssize_t k = recv(sockets[peer], p, n, 0);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k <= 0) {
            die("rank %d is gone: %s", peer, k ? strerror(errno) : "connection closed");
        }
        p += k;
        n -= (size_t)k;
    }
}

static void put(MPI_Comm c, int to, const void *data, size_t n)
{
    struct head h = {.comm = (uint32_t)c, .call = (uint32_t)comms[c].calls, .bytes = n};
    write_all(comms[c].members[to], &h, sizeof h);
    write_all(comms[c].members[to], data, n);
}

static void get(MPI_Comm c, int from, void *data, size_t n)
{
    struct head h;
    int peer = comms[c].members[from];
    read_all(peer, &h, sizeof h);
    if (h.comm != (uint32_t)c || h.call != (uint32_t)comms[c].calls || h.bytes != n) {
        die("rank %d is in call %u of communicator %u with %llu bytes, here it is call %d of %d "
            "with %zu",
            peer, h.call, h.comm, (unsigned long long)h.bytes, comms[c].calls, c, n);
    }
    read_all(peer, data, n);
}

static struct comm *comm_of(MPI_Comm c)
{
    if (!initialized || c <= 0 || c >= MAX_COMMS || !comms[c].used) {
        die("no communicator %d", c);
    }
    return &comms[c];
}

static size_t bytes_of(int count, MPI_Datatype type)
{
    if (count < 0 || (type & 0xff) == 0) {
        die("count %d of data type %#x", count, (unsigned)type);
    }
    return (size_t)count * (size_t)(type & 0xff);
}

static int listen_here(const char *dir, int rank)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, MAX_RANKS) ||
        getsockname(fd, (struct sockaddr *)&a, &len)) {
        die("cannot listen: %s", strerror(errno));
    }
    char path[512], final[512];
    (void)snprintf(path, sizeof path, "%s/new.%d", dir, rank);
    (void)snprintf(final, sizeof final, "%s/port.%d", dir, rank);
    FILE *f = fopen(path, "w");
    if (!f || fprintf(f, "%d\n", ntohs(a.sin_port)) < 0 || fclose(f) || rename(path, final)) {
        die("cannot write %s: %s", path, strerror(errno));
    }
    return fd;
}

static int connect_to(const char *dir, int rank, int peer)
{
    char path[512];
    int port = 0;
    (void)snprintf(path, sizeof path, "%s/port.%d", dir, peer);
    for (int ms = 0; !port; ms += 5) {
        FILE *f = fopen(path, "r");
        if (f) {
            port = fscanf(f, "%d", &port) == 1 ? port : 0;
            (void)fclose(f);
            break;
        }
        if (ms >= MEET_MS) {
            die("rank %d has not started within %d s", peer, MEET_MS / 1000);
        }
        struct timespec t = {.tv_nsec = 5000000};
        (void)nanosleep(&t, NULL); // cut short is fine
    }
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                            .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) ||
        send(fd, &rank, sizeof rank, MSG_NOSIGNAL) != (ssize_t)sizeof rank) {
        die("cannot connect to rank %d: %s", peer, strerror(errno));
    }
    return fd;
}

// Each process connects to those of lower rank and waits for those of higher rank.
static void meet(const char *dir)
{
    int rank = WORLD->rank;
    int listener = listen_here(dir, rank);
    for (int peer = 0; peer < rank; peer++) {
        sockets[peer] = connect_to(dir, rank, peer);
    }
    for (int left = WORLD->size - 1 - rank; left > 0; left--) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), peer = -1;
        if (fd < 0 || recv(fd, &peer, sizeof peer, MSG_WAITALL) != (ssize_t)sizeof peer ||
            peer <= rank || peer >= WORLD->size) {
            die("no greeting from a process of higher rank");
        }
        sockets[peer] = fd;
    }
    (void)close(listener); // nobody else will come
    const int one = 1;
    for (int peer = 0; peer < WORLD->size; peer++) {
        if (peer != rank) { // speed only
            (void)setsockopt(sockets[peer], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        }
    }
}

int MPI_Init(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    const char *dir = getenv("MPISHIM_DIR");
    WORLD->size = dir ? number("MPISHIM_SIZE", 1, MAX_RANKS) : 1; // alone without a launcher
    WORLD->rank = dir ? number("MPISHIM_RANK", 0, WORLD->size - 1) : 0;
    WORLD->used = 1;
    for (int i = 0; i < WORLD->size; i++) {
        WORLD->members[i] = i;
    }
    comms[MPI_COMM_SELF] = (struct comm){.used = 1, .size = 1, .members = {WORLD->rank}};
    if (WORLD->size > 1) {
        meet(dir);
    }
    initialized = 1;
    return MPI_SUCCESS;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    *provided = required < MPI_THREAD_SERIALIZED ? required : MPI_THREAD_SERIALIZED;
    return MPI_Init(argc, argv);
}

int MPI_Initialized(int *flag)
{
    *flag = initialized;
    return MPI_SUCCESS;
}

int MPI_Finalize(void)
{
    (void)MPI_Barrier(MPI_COMM_WORLD);
    for (int peer = 0; peer < WORLD->size; peer++) {
        if (peer != WORLD->rank) {
            (void)close(sockets[peer]); // nothing is under way after the barrier
        }
    }
    initialized = 0;
    return MPI_SUCCESS;
}

int MPI_Abort(MPI_Comm comm, int code)
{
    (void)comm;
    (void)fprintf(stderr, "mpi shim: rank %d: aborted with %d\n", WORLD->rank, code);
    _exit(code ? code : 1);
}

int MPI_Comm_rank(MPI_Comm comm, int *rank)
{
    *rank = comm_of(comm)->rank;
    return MPI_SUCCESS;
}

int MPI_Comm_size(MPI_Comm comm, int *size)
{
    *size = comm_of(comm)->size;
    return MPI_SUCCESS;
}

int MPI_Barrier(MPI_Comm comm)
{
    char all[MAX_RANKS];
    return MPI_Allgather("", 1, MPI_BYTE, all, 1, MPI_BYTE, comm);
}

int MPI_Bcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    struct comm *c = comm_of(comm);
    size_t n = bytes_of(count, type);
    c->calls++;
    if (c->rank != root) {
        get(comm, root, buf, n);
        return MPI_SUCCESS;
    }
    for (int i = 0; i < c->size; i++) {
        if (i != root) {
            put(comm, i, buf, n);
        }
    }
    return MPI_SUCCESS;
}

int MPI_Gather(const void *from, int from_count, MPI_Datatype from_type, void *to, int to_count,
               MPI_Datatype to_type, int root, MPI_Comm comm)
{
    struct comm *c = comm_of(comm);
    c->calls++;
    if (c->rank != root) {
        put(comm, root, from, bytes_of(from_count, from_type));
        return MPI_SUCCESS;
    }
    size_t n = bytes_of(to_count, to_type);
    for (int i = 0; i < c->size; i++) {
        if (i != root) {
            get(comm, i, (char *)to + n * (size_t)i, n);
        } else if (from != MPI_IN_PLACE) {
            memcpy((char *)to + n * (size_t)i, from, bytes_of(from_count, from_type));
        }
    }
    return MPI_SUCCESS;
}

int MPI_Allgather(const void *from, int from_count, MPI_Datatype from_type, void *to, int to_count,
                  MPI_Datatype to_type, MPI_Comm comm)
{
    struct comm *c = comm_of(comm);
    const size_t n = bytes_of(to_count, to_type);
    if (from == MPI_IN_PLACE && c->rank != 0) {
        from = (char *)to + n * (size_t)c->rank; // what the root has in its place already
    } else if (from != MPI_IN_PLACE && bytes_of(from_count, from_type) != n) {
        die("an all-gather of parts of different sizes");
    }
    (void)MPI_Gather(from, to_count, to_type, to, to_count, to_type, 0, comm);
    return MPI_Bcast(to, to_count * c->size, to_type, 0, comm);
}

#define REDUCE(type)                                                                               \
    for (int i = 0; i < count; i++) {                                                              \
        type a, b;                                                                                 \
        memcpy(&a, into + (size_t)i * sizeof a, sizeof a);                                         \
        memcpy(&b, from + (size_t)i * sizeof b, sizeof b);                                         \
        a = op == MPI_SUM ? a + b : (op == MPI_MIN) == (b < a) ? b : a;                            \
        memcpy(into + (size_t)i * sizeof a, &a, sizeof a);                                         \
    }

static void reduce(char *into, const char *from, int count, MPI_Datatype type, MPI_Op op)
{
    if (op < MPI_SUM || op > MPI_MAX) {
        die("no reduction %d", op);
    }
    switch (type) {
    case MPI_INT: REDUCE(int32_t) break;
    case MPI_INT64_T: REDUCE(int64_t) break;
    case MPI_UINT64_T: REDUCE(uint64_t) break;
    case MPI_FLOAT: REDUCE(float) break;
    case MPI_DOUBLE: REDUCE(double) break;
    default: die("no reduction of data type %#x", (unsigned)type);
    }
}

// Every process has the same bytes: the root adds in the order of the ranks.
int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm)
{
    struct comm *c = comm_of(comm);
    size_t n = bytes_of(count, type);
    char *all = calloc((size_t)c->size, n + 1);
    if (!all) {
        die("no memory for %zu bytes", n);
    }
    const void *mine = from == MPI_IN_PLACE ? to : from;
    (void)MPI_Gather(mine, count, type, all, count, type, 0, comm);
    for (int i = 1; c->rank == 0 && i < c->size; i++) {
        reduce(all, all + n * (size_t)i, count, type, op);
    }
    (void)MPI_Bcast(all, count, type, 0, comm);
    memcpy(to, all, n);
    free(all);
    return MPI_SUCCESS;
}

struct member {
    int color, key, rank, world;
};

static int by_key(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : x->rank - y->rank;
}

// Communicators are numbered alike everywhere: all members of the parent take the same number, also
// those that are in another part.
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *out_comm)
{
    struct comm *c = comm_of(comm);
    struct member all[MAX_RANKS], me = {color, key, c->rank, WORLD->rank};
    int new = MPI_COMM_SELF + 1;
    while (new < MAX_COMMS && comms[new].used) {
        new ++;
    }
    (void)MPI_Allreduce(MPI_IN_PLACE, &new, 1, MPI_INT, MPI_MAX, comm);
    if (new == MAX_COMMS) {
        die("more than %d communicators", MAX_COMMS);
    }
    (void)MPI_Allgather(&me, sizeof me, MPI_BYTE, all, sizeof me, MPI_BYTE, comm);
    if (color == MPI_UNDEFINED) {
        *out_comm = MPI_COMM_NULL;
        return MPI_SUCCESS;
    }
    qsort(all, (size_t)c->size, sizeof *all, by_key);
    struct comm part = {.used = 1};
    for (int i = 0; i < c->size; i++) {
        if (all[i].color == color) {
            part.rank = all[i].world == WORLD->rank ? part.size : part.rank;
            part.members[part.size++] = all[i].world;
        }
    }
    comms[new] = part;
    *out_comm = new;
    return MPI_SUCCESS;
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out_comm)
{
    (void)info;
    // all processes are on this host
    return MPI_Comm_split(comm, type == MPI_COMM_TYPE_SHARED ? 0 : MPI_UNDEFINED, key, out_comm);
}

int MPI_Comm_free(MPI_Comm *comm)
{
    comm_of(*comm)->used = 0;
    *comm = MPI_COMM_NULL;
    return MPI_SUCCESS;
}
