// SPDX-License-Identifier: Apache-2.0
// The NICs of a simulated node: each direction of a rank's NICs is a queue at the wire's rate.
//
// The nodes run alike, so when this one posts, all do, and what they post says what comes in here.
#include "kernels/message.h"
#include "tools/gemmar_perf/simulate_node.h"

static double max(double a, double b)
{
    return a > b ? a : b;
}

/* What the network carries of an own chunk. */
static double chunk_bytes(const struct gemmar_sim_node *s, uint32_t g, uint32_t slot)
{
    return (double)gemmar_parts_bytes(&s->plan.map,
                                      (int64_t)gemmar_visit_first(&s->plan.map, g) + slot);
}

/* What one message keeps a NIC for. */
static double message(const struct gemmar_sim_node *s, double bytes)
{
    return max(bytes / gemmar_sim_wire_rate(s->machine), s->machine->message_us);
}

/* The last byte of a message whose first one left its node at `left`. */
static double arrival(struct gemmar_sim_node *s, struct gemmar_sim_rank *r, double left,
                      double takes)
{
    r->nic_in = max(r->nic_in, left + s->machine->nic_us) + takes;
    s->result->arrived_us = max(s->result->arrived_us, r->nic_in);
    return r->nic_in;
}

/* Direct: with the last of its node sums a message goes to all peers, the next node first. No two
 * nodes send to one at once. */
static void send_direct(struct gemmar_sim_node *s, uint32_t g, uint32_t place, double now)
{
    struct gemmar_sim_rank *r = &s->ranks[g];
    struct gemmar_message m = gemmar_message_of(&s->plan.map, g, &s->plan.tensor.order, place);
    double takes = message(s, m.bytes), left = max(now, r->nic_out), at;
    uint32_t peers = s->plan.map.nodes - 1;

    if (++r->sums[m.first] < m.chunks) {
        return;
    }
    r->nic_out = left + peers * takes;
    r->wire_bytes += (uint64_t)m.bytes * peers;
    at = arrival(s, r, left, peers * takes);
    for (uint32_t i = m.first; i < m.first + m.chunks; i++) {
        gemmar_sim_arrive(s, g, gemmar_sim_own_slot(s, s->node, g, i), at);
    }
}

/* Two-shot: every node sends the node sum at this place of its walk to the node that reduces it. */
void gemmar_sim_send_sum(struct gemmar_sim_node *s, uint32_t g, uint32_t place, double now)
{
    struct gemmar_sim_rank *r = &s->ranks[g];
    uint32_t mine = gemmar_sim_own_slot(s, s->node, g, place);
    double bytes = chunk_bytes(s, g, mine), takes = message(s, bytes);
    double left = max(now, r->nic_out);

    if (!s->two_shot) {
        send_direct(s, g, place, now);
        return;
    }
    if (r->reducer[mine] != s->node) {
        r->nic_out = left + takes;
        r->wire_bytes += (uint64_t)bytes;
    }
    for (uint32_t j = 0; j < s->plan.map.nodes; j++) {
        uint32_t slot = gemmar_sim_own_slot(s, j, g, place);

        if (j != s->node && r->reducer[slot] == s->node) {
            gemmar_sim_arrive(s, g, slot, arrival(s, r, left, takes));
        }
    }
}

/* Two-shot: every node sends this one of its results to all others, the next node first. */
void gemmar_sim_send_result(struct gemmar_sim_node *s, uint32_t g, uint32_t which, double now)
{
    struct gemmar_sim_rank *r = &s->ranks[g];
    uint32_t nodes = s->plan.map.nodes;
    double bytes = chunk_bytes(s, g, gemmar_sim_reduce_slot(s, s->node, g, which));
    double takes = message(s, bytes), left = max(now, r->nic_out);

    r->nic_out = left + (nodes - 1) * takes;
    r->wire_bytes += (uint64_t)bytes * (nodes - 1);
    for (uint32_t d = 1; d < nodes; d++) { /* the d-th message of the node d before this one */
        uint32_t j = (s->node + nodes - d) % nodes;

        if (which < gemmar_sim_reduces(s, j, g)) {
            gemmar_sim_arrive(s, g, gemmar_sim_reduce_slot(s, j, g, which),
                              arrival(s, r, left + (d - 1) * takes, takes));
        }
    }
}
