// SPDX-License-Identifier: Apache-2.0
// The fabric: a directory with one shared segment that every process of every node maps.
// It names processes, nodes, ports and queue pairs. No lock is held in it: slots are claimed under
// flock, which the kernel drops when its holder dies, and a process is alive while it holds the
// record lock of its slot.
#ifndef GEMMAR_SOFTHCA_FABRIC_H
#define GEMMAR_SOFTHCA_FABRIC_H

#include <infiniband/verbs.h>
#include <stdint.h>

#define SOFTHCA_MAX_PROCS      256u
#define SOFTHCA_MAX_NODES      256u
#define SOFTHCA_MAX_DEVICES    8u
#define SOFTHCA_MAX_PORTS      2u
#define SOFTHCA_PORTS_PER_NODE (SOFTHCA_MAX_DEVICES * SOFTHCA_MAX_PORTS)
#define SOFTHCA_MAX_QPS        16384u // a power of two: the low bits of a QP number are its index
#define SOFTHCA_MAX_RULES      32u
#define SOFTHCA_RULE_BYTES     120u
#define SOFTHCA_MAX_EXPORTS    1024u
#define SOFTHCA_NO_EXPORT      UINT32_MAX
#define SOFTHCA_MAX_LID        (SOFTHCA_MAX_NODES * SOFTHCA_PORTS_PER_NODE)

// All words below are in shared memory, written and read with the orders of sync.h.
struct softhca_proc {
    uint32_t used;        // 1 while claimed. Writer: claimer and reclaimer under flock
    uint32_t gen;         // number of the claim; part of ring names. Writer: claimer under flock
    int32_t pid;          // for softhca-ctl only. Writer: claimer
    uint32_t node;        // index into nodes. Writer: claimer
    uint32_t bell;        // futex; bumped by whoever gave this process work while it slept
    uint32_t sleeping;    // 1 while the progress thread is about to sleep. Writer: its owner
                          // (set, clear) and whoever wakes it (clear). SC
    uint32_t inbound_seq; // bumped after inbound. Writer: any peer
    uint32_t pad;
    uint64_t inbound[SOFTHCA_MAX_PROCS / 64]; // bit s: slot s made a ring to us. Writer: peers (or)
    uint8_t pad2[64];
};

struct softhca_port_state {
    uint32_t down; // 1: no traffic. Writer: softhca-ctl or a fault rule. Release, then epoch
    uint32_t seq;  // number of changes, so that a quick down and up is not missed
};

struct softhca_node {
    char name[64];
    uint32_t used;
    uint32_t silent; // 1: the node neither sends nor receives. Writer: softhca-ctl
    struct softhca_port_state ports[SOFTHCA_PORTS_PER_NODE];
};

// An allocation of device memory that the other processes of this host may map.
struct softhca_export {
    uint32_t state; // softhca_export_state. Writer: the owner, and who reclaims a dead one. Release
    uint32_t gen;   // number of the claim; never 0. Written before state, like all below
    uint32_t slot;  // the owner
    uint32_t kind;  // softhca_export_kind
    uint64_t base;  // in the owner
    uint64_t bytes;
    uint64_t device;    // made of its GPU's UUID: another one has another number
    uint64_t handle[8]; // of cuIpcGetMemHandle, or where to ask for the descriptor
};
enum softhca_export_kind { SOFTHCA_EXPORT_IPC, SOFTHCA_EXPORT_DESCRIPTOR };
enum softhca_export_state { SOFTHCA_EXPORT_FREE, SOFTHCA_EXPORT_CLAIMED, SOFTHCA_EXPORT_LIVE };

struct softhca_fabric {
    uint64_t magic;
    uint32_t bytes;      // of this struct: another layout is refused
    uint32_t epoch;      // bumped after ports, silence or rules changed. Release / acquire
    uint32_t next_qp;    // where the search for a free queue pair starts
    uint32_t rules_seq;  // odd while rules are rewritten (under flock)
    uint32_t export_seq; // futex; bumped after exports changed
    uint8_t pad[36];
    struct softhca_proc procs[SOFTHCA_MAX_PROCS];
    struct softhca_node nodes[SOFTHCA_MAX_NODES];
    char rules[SOFTHCA_MAX_RULES][SOFTHCA_RULE_BYTES];
    uint32_t qp_gen[SOFTHCA_MAX_QPS]; // makes numbers of a reused entry differ. Writer: allocator
    // 0 free; else see SOFTHCA_ROUTE_*. Writer: the owner (claimed by compare-and-swap) and the
    // reclaimer of a dead owner. Readers: every sender. Release / acquire
    uint64_t qps[SOFTHCA_MAX_QPS];
    struct softhca_export exports[SOFTHCA_MAX_EXPORTS];
    // [e][s]: the gen of export e that slot s has mapped. Writer: slot s. Readers: senders. Release
    uint32_t mapped[SOFTHCA_MAX_EXPORTS][SOFTHCA_MAX_PROCS];
};

// A queue pair's entry: who owns it, behind which port, and whether it takes packets.
#define SOFTHCA_ROUTE_USED    (1ull << 56)
#define SOFTHCA_ROUTE_LIVE    (1ull << 57)
#define SOFTHCA_ROUTE_QPN(r)  ((uint32_t)((r)&0xffffff))
#define SOFTHCA_ROUTE_SLOT(r) ((uint32_t)((r) >> 24 & 0xffff))
#define SOFTHCA_ROUTE_LID(r)  ((uint32_t)((r) >> 40 & 0xffff))
#define SOFTHCA_QP_INDEX(qpn) ((qpn) & (SOFTHCA_MAX_QPS - 1))
#define SOFTHCA_QP_GEN_BITS   10u
#define SOFTHCA_QP_INDEX_BITS 14u

// This process's place in the fabric.
struct softhca_member {
    struct softhca_fabric *fabric;
    char dir[160];
    int lock_fd; // flock: claims and rules
    int live_fd; // record locks: one byte a slot
    uint32_t slot;
    uint32_t gen;
    uint32_t node;
};

// Map the fabric of dir, made if it is not there. claim: also take a slot for a process of the
// named node, after giving back the slots of dead ones. 0 or a negative errno, logged.
int softhca_fabric_open(struct softhca_member *m, const char *dir, const char *node, int claim);
void softhca_fabric_close(struct softhca_member *m);

int softhca_fabric_lock(const struct softhca_member *m);
void softhca_fabric_unlock(const struct softhca_member *m);

// 1 while the process of the slot lives (a stopped one does).
int softhca_fabric_alive(const struct softhca_member *m, uint32_t slot);
// Gives a new file its memory. Without signals: one of them would undo it, again and again with a
// timer's, and the limit of file sizes sends one that kills. 0 or a negative errno.
int softhca_fabric_reserve(int fd, uint64_t bytes);
// Index of the node, or -ENOENT.
int softhca_fabric_find_node(const struct softhca_fabric *f, const char *name);
// Tell every process that ports, silence or rules changed.
void softhca_fabric_changed(struct softhca_fabric *f);
void softhca_fabric_wake(struct softhca_proc *p);
// After work was published with SC order: wake the progress thread if it sleeps, and only the first
// of those who find it asleep.
void softhca_wake_sleeper(struct softhca_proc *p);

// Publish device memory (kind, base, bytes, handle of x); SOFTHCA_NO_EXPORT when the table is
// full. Withdraw it before it is freed.
uint32_t softhca_fabric_export(const struct softhca_member *m, const struct softhca_export *x);
void softhca_fabric_withdraw(const struct softhca_member *m, uint32_t e);

// 0 and a number that no other queue pair of the fabric has, or -ENOMEM.
int softhca_fabric_claim_qp(const struct softhca_member *m, uint32_t *out_qpn);
void softhca_fabric_publish_qp(const struct softhca_member *m, uint32_t qpn, uint32_t lid,
                               int live);
void softhca_fabric_release_qp(const struct softhca_member *m, uint32_t qpn);

// Ports are numbered by LID, also on Ethernet, where the LID is not shown. device and port start
// at 0.
static inline uint32_t softhca_lid(uint32_t node, uint32_t device, uint32_t port)
{
    return 1 + node * SOFTHCA_PORTS_PER_NODE + device * SOFTHCA_MAX_PORTS + port;
}

static inline struct softhca_port_state *softhca_fabric_port(struct softhca_fabric *f, uint32_t lid)
{
    return &f->nodes[(lid - 1) / SOFTHCA_PORTS_PER_NODE].ports[(lid - 1) % SOFTHCA_PORTS_PER_NODE];
}

#endif
