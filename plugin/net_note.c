// SPDX-License-Identifier: Apache-2.0
// What the ends of a connection of several paths tell each other when a path fails or heals:
// written into the peer's memory over a live path, and sent over the connection of the set-up while
// there is none. Each note has its end's whole state, and the newest one counts, whichever way it
// came.
#include <errno.h>
#include <string.h>

#include "plugin/net_comm.h"
#include "transport/wait.h"

#define LISTEN_NS 1000000u /* between two looks at the connection of the set-up */

/* The sender uses a path once it is live, the receiver is ready for that as soon as it is revived:
 * a bit that it sets again later is a new loss. */
static uint8_t bits_down(const struct net_comm *c)
{
    uint8_t bits = 0;

    for (uint32_t p = 0; p < c->paths; p++) {
        enum net_path_state state = c->failover.path[p].state;

        bits |= state == NET_PATH_DOWN || (c->sends && state == NET_PATH_REVIVED)
                    ? (uint8_t)(1u << p)
                    : 0;
    }
    return bits;
}

static void fill_note(const struct net_comm *c, struct net_note *note)
{
    const struct net_failover *f = &c->failover;

    memset(note, 0, sizeof(*note));
    note->begin = f->notes;
    note->round = f->round;
    note->heal = f->heal;
    note->down = bits_down(c);
    note->healthy = f->healthy;
    note->healing = f->healing < NET_MAX_RAILS ? (uint8_t)(1u << f->healing) : 0;
    note->head = c->head;
    for (uint32_t i = 0; !c->sends && i < NET_SLOTS; i++) {
        const struct net_request *request = &((const struct net_recv *)c)->request[i];

        note->done[i] = request->state == NET_REQUEST_RECV ? (uint8_t)~request->pending : 0xff;
    }
    note->stamp = f->notes;
}

/* No path is live: by the connection of the set-up. 0 or -EAGAIN; net_comm_check sees when the peer
 * has closed it. */
static int tell_by_socket(struct net_comm *c)
{
    struct net_failover *f = &c->failover;
    bool fresh = f->out.done == f->out.bytes;
    int rc;

    if (fresh) {
        f->notes++;
        fill_note(c, &f->told);
        f->out = (struct gemmar_socket_io){.data = &f->told, .bytes = sizeof(f->told)};
    }
    rc = gemmar_socket_send(c->fd, &f->out);
    f->tell = rc != 0 || !fresh; /* the rest of an earlier one does not have the newest state */
    return rc == 0 ? 0 : -EAGAIN;
}

int net_note_tell(struct net_comm *c)
{
    struct net_failover *f = &c->failover;
    struct net_lane *l = c->live[0];
    struct net_note *note = &f->outbox[(f->notes + 1) % NET_NOTES];
    struct ibv_sge sge = {.addr = (uintptr_t)note, .length = sizeof(*note), .lkey = l->words_lkey};
    struct ibv_send_wr *bad, wr = {.sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_RDMA_WRITE,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .wr.rdma = {.remote_addr = c->peer_words + f->peer_inbox,
                                               .rkey = l->peer_words_rkey}};
    int rc;

    if (c->live_paths == 0) {
        return tell_by_socket(c);
    }
    if (l->room == 0) {
        return -EAGAIN;
    }
    f->notes++;
    fill_note(c, note);
    wr.wr_id = net_wr_id(NET_WORK_CTS, l->index, 1 + l->unsignalled, 0);
    rc = ibv_post_send(l->qp, &wr, &bad);
    if (rc == ENOMEM) {
        f->notes--;
        return -EAGAIN;
    }
    if (rc != 0) {
        return net_comm_fail(c, GEMMAR_NCCL_SYSTEM_ERROR, "a note cannot be sent: %s",
                             strerror(rc));
    }
    l->unsignalled = 0;
    l->room--;
    f->tell = false;
    return 0;
}

/* Word by word, each with acquire: the NIC may write the next one meanwhile, and what is read after
 * this is read after all of it. */
static void copy_note(const struct net_note *from, struct net_note *out)
{
    const uint64_t *at = (const void *)from;
    uint64_t word[sizeof(*from) / sizeof(uint64_t)];

    for (size_t i = 0; i < sizeof(word) / sizeof(word[0]); i++) {
        word[i] = gemmar_load_acquire(&at[i]);
    }
    memcpy(out, word, sizeof(word));
}

/* A note that has come as a whole: is it the newest? */
static bool take(struct net_failover *f, const struct net_note *note)
{
    if (note->begin != note->stamp || note->stamp <= f->seen) {
        return false;
    }
    f->seen = note->stamp;
    f->heard = *note;
    return true;
}

/* A peer that has no live path left tells over the connection of the set-up. */
static void hear_by_socket(struct net_comm *c)
{
    struct net_failover *f = &c->failover;
    uint64_t now = gemmar_now_ns();

    if (now - f->listened_ns < LISTEN_NS) {
        return;
    }
    f->listened_ns = now;
    if (f->in.done == f->in.bytes) {
        f->in = (struct gemmar_socket_io){.data = &f->coming, .bytes = sizeof(f->coming)};
    }
    if (gemmar_socket_recv(c->fd, &f->in) == 0) {
        (void)take(f, &f->coming);
    }
}

void net_note_hear(struct net_comm *c)
{
    struct net_failover *f = &c->failover;
    uint64_t stamp = gemmar_load_acquire(&f->inbox->stamp);
    struct net_note note;

    if (stamp > f->seen) {
        copy_note(f->inbox, &note);
        if (gemmar_load_acquire(&f->inbox->begin) == stamp && note.stamp == stamp) {
            (void)take(f, &note);
        } /* else the next one is just being written */
    }
    if (c->live_paths < c->paths) {
        hear_by_socket(c);
    }
}
