// SPDX-License-Identifier: Apache-2.0
// libibverbs of an old rdma-core: all that is needed, nothing of what came later.
#define STUB(name)                                                                                 \
    void ibv_##name(void);                                                                         \
    void ibv_##name(void)                                                                          \
    {                                                                                              \
    }

STUB(get_device_list)
STUB(free_device_list)
STUB(get_device_name)
STUB(open_device)
STUB(close_device)
STUB(query_device)
STUB(query_port)
STUB(query_gid)
STUB(alloc_pd)
STUB(dealloc_pd)
STUB(reg_mr)
STUB(dereg_mr)
STUB(create_cq)
STUB(destroy_cq)
STUB(create_qp)
STUB(modify_qp)
STUB(destroy_qp)
STUB(get_async_event)
STUB(ack_async_event)
STUB(fork_init)
STUB(event_type_str)
STUB(wc_status_str)
