// SPDX-License-Identifier: Apache-2.0
// The all-gather between the ranks of several nodes.
#include "kernels/nodes_gather.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "kernels/agree.h"
#include "transport/bootstrap.h"
#include "transport/order.h"
#include "transport/wait.h"

#define LOOK_TURNS  64 /* turns of a wait between two looks at the local peers */
#define CLIENTS     4  /* that may be in the handshake at once: strangers knock, too */
#define HELLO_MAGIC UINT64_C(0x6e6f646572696e67)
#define MOST_BYTES  (UINT64_C(64) << 20) /* of a block: more is no block */
/* For a connection, of ranks that have just left a step together. Less than what the caller's
 * all-gather waits for those that cannot connect: they have to come to it and say so. */
#define CONNECT_NS UINT64_C(60000000000)

/* How a rank is reached, gathered from all of them. */
struct meeting {
    struct gemmar_socket_address address;
    uint64_t cookie[2]; /* only ranks know it */
};

/* What a connecting rank says first. */
struct hello {
    uint64_t magic;
    uint64_t cookie[2];
    uint64_t rank;
};

struct client {
    int fd; /* -1: free */
    struct hello hello;
    struct gemmar_socket_io io;
};

/* Both ends of this rank's part of the ring while it is made. */
struct making {
    int listener;
    struct meeting mine;
    struct gemmar_bootstrap_address own;
    struct gemmar_socket_connect connecting;
    struct hello hello;
    struct gemmar_socket_io hello_io;
    bool told; /* the next node has my hello */
    struct client clients[CLIENTS];
    unsigned newest;
};

/* My local rank of the node that is `step` behind mine. */
static uint32_t rank_behind(const struct gemmar_nodes_gather *g, uint32_t step)
{
    uint32_t node = (g->place->node + step) % g->place->nodes;

    return g->rank_of[node * g->place->locals + g->place->local];
}

/* -- connecting -------------------------------------------------------------------------------- */

static void start_listening(struct gemmar_nodes_gather *g, struct making *m,
                            struct gemmar_error *error)
{
    struct gemmar_knobs *knobs = malloc(sizeof(*knobs));
    struct gemmar_logger log = *g->log; /* its level is the communicator's */
    int rc = knobs != NULL ? gemmar_knobs_read(knobs, &log) : -ENOMEM;

    gemmar_error_note("");
    if (rc == 0) {
        rc = gemmar_bootstrap_address(knobs, g->log, &m->own);
    }
    if (rc == 0) {
        m->listener = gemmar_socket_listen(&m->own.address, &m->mine.address);
        rc = m->listener < 0 ? m->listener : 0;
    }
    if (rc == 0 &&
        getrandom(m->mine.cookie, sizeof(m->mine.cookie), 0) != (ssize_t)sizeof(m->mine.cookie)) {
        rc = -errno;
    }
    if (rc != 0) {
        (void)gemmar_error_set(
            error, gemmarSystemError, "no socket for the set-up between nodes: %s",
            gemmar_error_noted()[0] != '\0' ? gemmar_error_noted() : strerror(-rc));
    }
    free(knobs);
}

static void drop(struct client *client)
{
    gemmar_socket_close(client->fd);
    client->fd = -1;
}

/* One more client, in place of the oldest one. */
static int take_client(struct making *m)
{
    int fd = gemmar_socket_accept(m->listener, NULL);
    struct client *client;

    if (fd < 0) {
        return fd == -EAGAIN ? 0 : fd;
    }
    client = &m->clients[m->newest++ % CLIENTS];
    drop(client);
    *client =
        (struct client){.fd = fd, .io = {.data = &client->hello, .bytes = sizeof(client->hello)}};
    return 0;
}

/* Is one of them the previous node's rank? */
static void look_at_clients(struct gemmar_nodes_gather *g, struct making *m)
{
    for (int i = 0; i < CLIENTS && g->previous < 0; i++) {
        struct client *client = &m->clients[i];
        int rc = client->fd >= 0 ? gemmar_socket_recv(client->fd, &client->io) : -EAGAIN;

        if (rc == -EAGAIN) {
            continue;
        }
        if (rc == 0 && client->hello.magic == HELLO_MAGIC &&
            memcmp(client->hello.cookie, m->mine.cookie, sizeof(m->mine.cookie)) == 0 &&
            client->hello.rank == rank_behind(g, g->place->nodes - 1)) {
            g->previous = client->fd;
            client->fd = -1;
        } else {
            drop(client);
        }
    }
}

/* One turn; -EAGAIN: not all there yet. */
static int make_connections(struct gemmar_nodes_gather *g, struct making *m)
{
    int rc = g->next < 0 ? gemmar_socket_connect_poll(&m->connecting, &g->next) : 0;

    if (rc == 0 && !m->told) {
        rc = gemmar_socket_send(g->next, &m->hello_io);
        m->told = rc == 0;
    }
    if (rc != 0 && rc != -EAGAIN) {
        return rc;
    }
    if (g->previous < 0) {
        rc = take_client(m);
        look_at_clients(g, m);
    }
    if (rc != 0 && rc != -EAGAIN) {
        return rc;
    }
    return m->told && g->previous >= 0 ? 0 : -EAGAIN;
}

static void connect_ring(struct gemmar_nodes_gather *g, struct making *m, struct meeting *next,
                         struct gemmar_error *error)
{
    char text[GEMMAR_SOCKET_TEXT_BYTES];
    struct gemmar_wait wait;
    int rc;

    gemmar_bootstrap_adopt_scope(&next->address, &m->own);
    gemmar_socket_connect_init(&m->connecting, &next->address, 0);
    m->hello = (struct hello){HELLO_MAGIC, {next->cookie[0], next->cookie[1]}, g->place->rank};
    m->hello_io = (struct gemmar_socket_io){.data = &m->hello, .bytes = sizeof(m->hello)};
    gemmar_wait_init(&wait, g->local->timeout_ns < CONNECT_NS ? g->local->timeout_ns : CONNECT_NS);
    do {
        rc = make_connections(g, m);
    } while (rc == -EAGAIN && gemmar_wait_step(&wait));
    if (rc != 0) {
        (void)gemmar_error_set(
            error, gemmarSystemError,
            "no connection to rank %u at %s, or none from rank %u: %s (NCCL_SOCKET_IFNAME names "
            "the "
            "interface)",
            rank_behind(g, 1), gemmar_socket_address_text(&next->address, text, sizeof(text)),
            rank_behind(g, g->place->nodes - 1), rc == -EAGAIN ? "time is over" : strerror(-rc));
    }
    gemmar_socket_connect_release(&m->connecting);
}

gemmarResult_t gemmar_nodes_gather_open(struct gemmar_nodes_gather *g,
                                        const gemmarHostBootstrap_t *bootstrap,
                                        struct gemmar_error *error)
{
    struct meeting *all = calloc(g->place->ranks, sizeof(*all));
    struct making m;
    gemmarResult_t result;

    memset(&m, 0, sizeof(m)); /* padding travels, too */
    m.listener = -1;
    for (int i = 0; i < CLIENTS; i++) {
        m.clients[i].fd = -1;
    }
    g->next = g->previous = -1;
    if (all == NULL) {
        (void)gemmar_error_set(error, gemmarSystemError, "out of memory");
    } else if (error->result == gemmarSuccess) {
        start_listening(g, &m, error);
    }
    result = gemmar_agree(bootstrap, GEMMAR_AGREE_ADDRESS, error, &m.mine, sizeof(m.mine), all);
    if (result == gemmarSuccess) {
        connect_ring(g, &m, &all[rank_behind(g, 1)], error);
        result = gemmar_agree(bootstrap, GEMMAR_AGREE_CONNECTED, error, NULL, 0, NULL);
    }
    for (int i = 0; i < CLIENTS; i++) {
        drop(&m.clients[i]);
    }
    gemmar_socket_close(m.listener);
    free(all);
    return result;
}

void gemmar_nodes_gather_leave(struct gemmar_nodes_gather *g)
{
    gemmar_socket_shutdown(g->next);
    gemmar_socket_shutdown(g->previous);
}

uint32_t gemmar_nodes_gather_left(const struct gemmar_nodes_gather *g)
{
    if (g->next >= 0 && gemmar_socket_check(g->next) != 0) {
        return rank_behind(g, 1);
    }
    if (g->previous >= 0 && gemmar_socket_check(g->previous) != 0) {
        return rank_behind(g, g->place->nodes - 1);
    }
    return UINT32_MAX;
}

void gemmar_nodes_gather_close(struct gemmar_nodes_gather *g)
{
    gemmar_socket_close(g->next);
    gemmar_socket_close(g->previous);
    g->next = g->previous = -1;
}

/* -- gathering --------------------------------------------------------------------------------- */

/* What goes before a block: ranks in different calls have blocks of different sizes, and shall find
 * that out from what is in them. */
struct block {
    uint64_t bytes;
    struct gemmar_socket_io head, body;
};

static void begin(struct block *b, uint64_t bytes, void *data)
{
    b->bytes = bytes;
    b->head = (struct gemmar_socket_io){.data = &b->bytes, .bytes = sizeof(b->bytes)};
    b->body = (struct gemmar_socket_io){.data = data, .bytes = bytes};
}

static int send_block(int fd, struct block *b)
{
    int rc = gemmar_socket_send(fd, &b->head);

    return rc == 0 ? gemmar_socket_send(fd, &b->body) : rc;
}

/* The body goes into memory of the size that its head tells. */
static int recv_block(int fd, struct block *b)
{
    int rc = gemmar_socket_recv(fd, &b->head);

    if (rc != 0) {
        return rc;
    }
    if (b->body.data == NULL) {
        if (b->bytes > MOST_BYTES) {
            return -EPROTO;
        }
        b->body = (struct gemmar_socket_io){.data = malloc(b->bytes + 1), .bytes = b->bytes};
        if (b->body.data == NULL) {
            return -ENOMEM;
        }
    }
    return gemmar_socket_recv(fd, &b->body);
}

/* Has a rank of this node left, or am I to leave? Then the ring will not get round. */
static int look_at_node(const struct gemmar_nodes_gather *g)
{
    const struct gemmar_local_peers *peers = g->local->peers;

    for (uint32_t i = 0; i < g->place->locals; i++) {
        if (gemmar_load_acquire(&peers->controls[i]->broken) != 0) {
            return -ECONNRESET;
        }
        if (i != g->place->local && peers->visible[i] &&
            gemmar_process_gone(&peers->controls[i]->process)) {
            return -EHOSTDOWN;
        }
    }
    return 0;
}

/* Send a block on while the previous node's comes. */
static int exchange(struct gemmar_nodes_gather *g, struct block *out, struct block *in)
{
    int sent = -EAGAIN, received = -EAGAIN, rc = 0;
    struct gemmar_wait wait;

    gemmar_wait_init(&wait, g->local->timeout_ns);
    for (int turn = 1; rc == 0; turn++) {
        sent = sent == -EAGAIN ? send_block(g->next, out) : sent;
        received = received == -EAGAIN ? recv_block(g->previous, in) : received;
        if (sent != -EAGAIN && received != -EAGAIN) {
            return sent != 0 ? sent : received;
        }
        if ((sent != 0 && sent != -EAGAIN) || (received != 0 && received != -EAGAIN)) {
            return sent != 0 && sent != -EAGAIN ? sent : received;
        }
        if (!gemmar_wait_step(&wait)) {
            return -ETIMEDOUT;
        }
        rc = turn % LOOK_TURNS == 0 ? look_at_node(g) : 0;
    }
    return rc;
}

/* Round after round each rank passes on what it got last; blocks: [nodes][bytes], mine is there. */
static int go_round(struct gemmar_nodes_gather *g, char *blocks, size_t bytes)
{
    uint32_t nodes = g->place->nodes, me = g->place->node;
    int rc = 0;

    for (uint32_t round = 0; rc == 0 && round + 1 < nodes; round++) {
        char *mine = blocks + (me + nodes - round) % nodes * bytes;
        char *theirs = blocks + (me + nodes - round - 1) % nodes * bytes;
        struct block out, in;

        begin(&out, bytes, mine);
        begin(&in, 0, NULL);
        rc = exchange(g, &out, &in);
        if (rc == 0) {
            memcpy(theirs, in.body.data, in.bytes < bytes ? in.bytes : bytes);
        }
        free(in.body.data);
    }
    return rc;
}

/* Then the local ranks share what each has of its own row. */
static int share(struct gemmar_nodes_gather *g, const char *blocks, char *all, size_t bytes)
{
    uint32_t locals = g->place->locals;
    char *row = malloc(locals * bytes + 1);
    int rc = row != NULL ? 0 : -ENOMEM;

    for (uint32_t n = 0; rc == 0 && n < g->place->nodes; n++) {
        rc = gemmar_local_gather_all(g->local, blocks + n * bytes, row, bytes);
        for (uint32_t i = 0; rc == 0 && i < locals; i++) {
            memcpy(all + g->rank_of[n * locals + i] * bytes, row + i * bytes, bytes);
        }
    }
    free(row);
    return rc;
}

/* A gather failed. The neighbours see that the connections end; local ranks, which wait for this
 * one in the segments, do not, and a communicator that is being made has nothing else to tell them.
 */
static void fail(struct gemmar_nodes_gather *g, int rc)
{
    struct gemmar_control *mine = g->local->peers->controls[g->place->local];

    gemmar_nodes_gather_leave(g);
    if (gemmar_load_acquire(&mine->broken) == 0) {
        (void)snprintf(mine->text, sizeof(mine->text),
                       "rank %u: the all-gather between nodes failed: %s", g->place->rank,
                       strerror(-rc));
        gemmar_store_release(&mine->broken, 1);
    }
}

int gemmar_nodes_gather_all(void *context, const void *mine, void *all, size_t bytes)
{
    struct gemmar_nodes_gather *g = context;
    char *blocks = calloc(g->place->nodes, bytes + 1);
    int rc = blocks == NULL ? -ENOMEM : g->next < 0 ? -ENOTCONN : 0;

    if (rc == 0) {
        memcpy(blocks + g->place->node * bytes, mine, bytes);
        rc = go_round(g, blocks, bytes);
        if (rc != 0) {
            gemmar_warn(g->log,
                        "nodes_gather: rank %u: the ring through the nodes (from rank %u, to rank "
                        "%u) ended: %s",
                        g->place->rank, rank_behind(g, g->place->nodes - 1), rank_behind(g, 1),
                        strerror(-rc));
        }
    }
    if (rc == 0) {
        rc = share(g, blocks, all, bytes);
    }
    if (rc != 0) {
        fail(g, rc);
    }
    free(blocks);
    return rc;
}
