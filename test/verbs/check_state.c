// SPDX-License-Identifier: Apache-2.0
// Checks: the queue pair's state machine.
#include "test/verbs/conformance.h"

#include <errno.h>
#include <string.h>

static int move(struct ibv_qp *qp, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {.qp_state = state};
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static void skipped_states(void)
{
    struct side s;
    struct ibv_qp_attr attr;
    side_open(&s, 0, NULL);
    struct address self = side_address(&s);
    int mask = rtr_attr(&s, &self, &attr);
    MUST(ibv_modify_qp(s.qp, &attr, mask) == EINVAL, "RESET to RTR is refused");
    mask = rts_attr(&s, &attr);
    MUST(ibv_modify_qp(s.qp, &attr, mask) == EINVAL, "RESET to RTS is refused");
    MUST(qp_state(s.qp) == IBV_QPS_RESET, "still RESET");
    qp_init(&s, s.qp);
    mask = rts_attr(&s, &attr);
    MUST(ibv_modify_qp(s.qp, &attr, mask) == EINVAL, "INIT to RTS is refused");
    MUST(qp_state(s.qp) == IBV_QPS_INIT, "still INIT");
    qp_rtr(&s, s.qp, &self);
    mask = init_attr(&s, &attr);
    MUST(ibv_modify_qp(s.qp, &attr, mask) == EINVAL, "RTR to INIT is refused");
    MUST(qp_state(s.qp) == IBV_QPS_RTR, "still RTR");
    qp_rts(&s, s.qp);
    mask = rtr_attr(&s, &self, &attr);
    MUST(ibv_modify_qp(s.qp, &attr, mask) == EINVAL, "RTS to RTR is refused");
    MUST(qp_state(s.qp) == IBV_QPS_RTS, "still RTS");
    side_close(&s);
}

// Drops each required bit in turn; none may be missing.
static void refuse_each(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    for (int bit = 1; bit <= mask; bit <<= 1) {
        if ((mask & bit) && bit != IBV_QP_STATE) {
            MUST(ibv_modify_qp(qp, attr, mask & ~bit) == EINVAL, "refused without mask bit 0x%x",
                 (unsigned)bit);
        }
    }
}

static void missing_bits(void)
{
    struct side s;
    struct ibv_qp_attr attr;
    side_open(&s, 0, NULL);
    struct address self = side_address(&s);
    int mask = init_attr(&s, &attr);
    refuse_each(s.qp, &attr, mask);
    qp_init(&s, s.qp);
    mask = rtr_attr(&s, &self, &attr);
    refuse_each(s.qp, &attr, mask);
    qp_rtr(&s, s.qp, &self);
    mask = rts_attr(&s, &attr);
    refuse_each(s.qp, &attr, mask);
    qp_rts(&s, s.qp);
    side_close(&s);
}

static void surplus_bits(void)
{
    struct side s;
    struct ibv_qp_attr attr;
    side_open(&s, 0, NULL);
    struct address self = side_address(&s);
    int mask = init_attr(&s, &attr);
    MUST(ibv_modify_qp(s.qp, &attr, mask | IBV_QP_DEST_QPN) == EINVAL, "no DEST_QPN to INIT");
    qp_init(&s, s.qp);
    mask = rtr_attr(&s, &self, &attr);
    attr.timeout = 14;
    MUST(ibv_modify_qp(s.qp, &attr, mask | IBV_QP_TIMEOUT) == EINVAL, "no TIMEOUT to RTR");
    qp_rtr(&s, s.qp, &self);
    mask = rts_attr(&s, &attr);
    attr.path_mtu = IBV_MTU_1024;
    MUST(ibv_modify_qp(s.qp, &attr, mask | IBV_QP_PATH_MTU) == EINVAL, "no PATH_MTU to RTS");
    qp_rts(&s, s.qp);
    side_close(&s);
}

static void wrong_values(void)
{
    struct side s;
    struct ibv_qp_attr attr;
    struct ibv_device_attr dev;
    side_open(&s, 0, NULL);
    MUST(ibv_query_device(s.ctx, &dev) == 0, "ibv_query_device");
    struct address self = side_address(&s);
    int mask = init_attr(&s, &attr);
    attr.port_num = (uint8_t)(dev.phys_port_cnt + 1);
    MUST(ibv_modify_qp(s.qp, &attr, mask) != 0, "a port that is not there is refused");
    qp_init(&s, s.qp);
    mask = rtr_attr(&s, &self, &attr);
    attr.path_mtu = IBV_MTU_4096 + 1;
    MUST(ibv_modify_qp(s.qp, &attr, mask) != 0, "an unknown MTU is refused");
    if (s.port.link_layer == IBV_LINK_LAYER_ETHERNET) {
        rtr_attr(&s, &self, &attr);
        attr.ah_attr.is_global = 0;
        MUST(ibv_modify_qp(s.qp, &attr, mask) != 0, "RoCE without a GID is refused");
        rtr_attr(&s, &self, &attr);
        attr.ah_attr.grh.sgid_index = 255;
        MUST(s.port.gid_tbl_len > 255 || ibv_modify_qp(s.qp, &attr, mask) != 0,
             "a source GID past the table is refused");
    }
    MUST(qp_state(s.qp) == IBV_QPS_INIT, "still INIT");
    side_close(&s);
}

static void partition_key(void)
{
    struct side s;
    struct ibv_qp_attr attr;
    side_open(&s, 0, NULL);
    int mask = init_attr(&s, &attr);
    attr.pkey_index = s.port.pkey_tbl_len;
    int rc = ibv_modify_qp(s.qp, &attr, mask);
    MUST(rc != 0 || allowed(DIFF_PARTITION_KEY_NOT_CHECKED), "an index past the table is refused");
    MUST(rc == 0 || qp_state(s.qp) == IBV_QPS_RESET, "still RESET");
    side_close(&s);
}

static void reads_in_flight(void)
{
    struct side s;
    struct ibv_qp_attr attr;
    struct ibv_device_attr dev;
    side_open(&s, 0, NULL);
    MUST(ibv_query_device(s.ctx, &dev) == 0, "ibv_query_device");
    struct address self = side_address(&s);
    qp_init(&s, s.qp);
    int mask = rtr_attr(&s, &self, &attr);
    attr.max_dest_rd_atomic = 255;
    int rc = ibv_modify_qp(s.qp, &attr, mask);
    MUST(dev.max_qp_rd_atom >= 255 || rc != 0 || allowed(DIFF_READS_IN_FLIGHT_NOT_CHECKED),
         "more than max_qp_rd_atom are refused");
    side_close(&s);
}

static void current_state(void)
{
    struct pair p;
    pair_open(&p, NULL);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_RTS};
    MUST(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE) == 0, "RTS is right");
    pair_works(&p);
    pair_close(&p);
}

static void attributes_read_back(void)
{
    struct pair p;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    pair_open(&p, &(struct setup){.timeout = 15, .retry_cnt = 5, .rnr_retry = 4, .rnr_timer = 9});
    memset(&attr, 0, sizeof(attr));
    memset(&init, 0, sizeof(init));
    int mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
               IBV_QP_RQ_PSN | IBV_QP_DEST_QPN | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER |
               IBV_QP_CAP | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT | IBV_QP_AV | IBV_QP_MAX_QP_RD_ATOMIC;
    MUST(ibv_query_qp(p.a.qp, &attr, mask, &init) == 0, "ibv_query_qp");
    MUST(attr.qp_state == IBV_QPS_RTS && p.a.qp->state == IBV_QPS_RTS, "RTS in both places");
    MUST(attr.timeout == 15 && attr.retry_cnt == 5 && attr.rnr_retry == 4, "the retries");
    MUST(attr.min_rnr_timer == 9, "the receiver's timer");
    MUST(attr.dest_qp_num == p.b.qp->qp_num, "the peer");
    MUST(attr.path_mtu == p.a.port.active_mtu && attr.port_num == options.port, "MTU and port");
    MUST(attr.qp_access_flags == (unsigned)p.a.setup.qp_access, "the access flags");
    MUST(attr.max_rd_atomic == 4 && attr.max_dest_rd_atomic == 4, "READs in flight");
    MUST(attr.cap.max_send_wr >= 128 && attr.cap.max_recv_wr >= 128, "the capacities");
    MUST(init.qp_type == IBV_QPT_RC && init.send_cq == p.a.send_cq && init.recv_cq == p.a.recv_cq,
         "how it was created");
    pair_close(&p);
}

static void error_and_back(void)
{
    struct pair p;
    pair_open(&p, NULL);
    for (int i = 0; i < 3; i++) {
        pair_works(&p);
        qp_move(p.a.qp, IBV_QPS_ERR);
        MUST(qp_state(p.a.qp) == IBV_QPS_ERR, "any state to ERR");
        MUST(move(p.a.qp, IBV_QPS_RTS) == EINVAL, "ERR to RTS is refused");
        qp_move(p.a.qp, IBV_QPS_RESET);
        qp_move(p.b.qp, IBV_QPS_RESET);
        MUST(qp_state(p.a.qp) == IBV_QPS_RESET, "any state to RESET");
        struct address a = side_address(&p.a), b = side_address(&p.b);
        qp_connect(&p.a, p.a.qp, &b);
        qp_connect(&p.b, p.b.qp, &a);
    }
    pair_works(&p);
    pair_close(&p);
}

// RESET forgets what is queued: neither a flush nor the old receive may show up later.
static void reset_forgets(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    recv_post(&p.b, 1, 0, 100);
    qp_move(p.b.qp, IBV_QPS_RESET);
    qp_move(p.a.qp, IBV_QPS_RESET);
    struct address a = side_address(&p.a), b = side_address(&p.b);
    qp_connect(&p.a, p.a.qp, &b);
    qp_connect(&p.b, p.b.qp, &a);
    wc_none(p.b.recv_cq, 50);
    recv_post(&p.b, 2, 0, 100);
    job_post(p.a.qp, job_fill(&j, IBV_WR_SEND, 3, &p.a, 0, NULL, 0, 10));
    wc_expect(p.b.recv_cq, 2, IBV_WC_SUCCESS);
    wc_expect(p.a.send_cq, 3, IBV_WC_SUCCESS);
    pair_close(&p);
}

// A queue pair that cannot send yet either refuses a request or leaves it alone.
static void send_too_early(void)
{
    struct pair p;
    struct job j;
    side_open(&p.a, 0, NULL);
    side_open(&p.b, 1, NULL);
    struct address b = side_address(&p.b), a = side_address(&p.a);
    qp_connect(&p.b, p.b.qp, &a);
    memset(p.a.buf, 7, 8);
    job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 8);
    (void)job_try(p.a.qp, &j); // refused or not: both are seen
    qp_init(&p.a, p.a.qp);
    (void)job_try(p.a.qp, &j);
    struct ibv_wc wc = {.status = IBV_WC_GENERAL_ERR};
    MUST(!wc_poll(p.a.send_cq, &wc, 50) || wc.status != IBV_WC_SUCCESS, "no success before RTS");
    MUST(bytes_are(p.b.buf, 8, 0), "nothing was written");
    qp_rtr(&p.a, p.a.qp, &b);
    MUST(bytes_are(p.b.buf, 8, 0), "nothing was written");
    pair_close(&p);
}

// A receive may be posted from INIT on; it serves the first message.
static void receive_early(void)
{
    struct pair p;
    struct job j;
    side_open(&p.a, 0, NULL);
    side_open(&p.b, 1, NULL);
    struct address b = side_address(&p.b), a = side_address(&p.a);
    qp_init(&p.b, p.b.qp);
    recv_post(&p.b, 5, 64, 100);
    qp_rtr(&p.b, p.b.qp, &a);
    qp_connect(&p.a, p.a.qp, &b);
    pattern_fill(p.a.buf, 100, 4);
    job_post(p.a.qp, job_fill(&j, IBV_WR_SEND, 6, &p.a, 0, NULL, 0, 100));
    wc_expect(p.b.recv_cq, 5, IBV_WC_SUCCESS);
    wc_expect(p.a.send_cq, 6, IBV_WC_SUCCESS);
    MUST(pattern_is(p.b.buf + 64, 100, 4), "the message");
    pair_close(&p);
}

// Rights may change while the queue pair runs.
static void rights_change(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_READ};
    pair_works(&p);
    MUST(ibv_modify_qp(p.b.qp, &attr, IBV_QP_ACCESS_FLAGS) == 0, "without a change of state");
    MUST(qp_state(p.b.qp) == IBV_QPS_RTS, "still RTS");
    job_post(p.a.qp, job_fill(&j, IBV_WR_RDMA_READ, 1, &p.a, 0, &p.b, 0, 8));
    wc_expect(p.a.send_cq, 1, IBV_WC_SUCCESS);
    job_post(p.a.qp, job_fill(&j, IBV_WR_RDMA_WRITE, 2, &p.a, 0, &p.b, 0, 8));
    struct ibv_wc wc = {0};
    MUST(wc_poll(p.a.send_cq, &wc, WAIT_MS) && wc.status != IBV_WC_SUCCESS, "no writes any more");
    pair_close(&p);
}

// Works, or says in the way that programs look for that it does not.
static void enhanced_connection(void)
{
    struct side s;
    struct ibv_ece none = {0}, ece = {0};
    side_open(&s, 0, NULL);
    MUST(ibv_set_ece(s.qp, &none) == EOPNOTSUPP, "options of no vendor are not supported");
    int rc = ibv_query_ece(s.qp, &ece);
    MUST(rc == 0 || rc == EOPNOTSUPP, "query_ece answers %d", rc);
    if (rc == 0 && ece.vendor_id != 0) {
        struct ibv_ece unknown = ece;
        unknown.comp_mask = UINT32_MAX;
        MUST(ibv_set_ece(s.qp, &unknown) == EINVAL, "unknown extensions are refused");
        MUST(ibv_set_ece(s.qp, &ece) == 0, "the device takes what it offers");
    }
    side_close(&s);
}

const struct check state_checks[] = {
    {"state.skipped_states_are_refused", skipped_states, 0},
    {"state.missing_attributes_are_refused", missing_bits, 0},
    {"state.surplus_attributes_are_refused", surplus_bits, 0},
    {"state.wrong_values_are_refused", wrong_values, 0},
    {"state.partition_key_past_the_table_is_refused", partition_key, 0},
    {"state.too_many_reads_in_flight_are_refused", reads_in_flight, 0},
    {"state.current_state_is_accepted", current_state, 0},
    {"state.attributes_read_back", attributes_read_back, 0},
    {"state.error_and_back", error_and_back, 0},
    {"state.reset_forgets_what_is_queued", reset_forgets, 0},
    {"state.send_before_rts_does_nothing", send_too_early, 0},
    {"state.rights_change_in_rts", rights_change, 0},
    {"state.receive_posted_in_init", receive_early, 0},
    {"state.enhanced_connection_works_or_says_not", enhanced_connection, 0},
    {0},
};
