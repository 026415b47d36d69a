// SPDX-License-Identifier: Apache-2.0
// The tables of all API versions over a stand-in for the network: which argument goes where, in
// which type, and that nothing outside the caller's struct of that version is touched. The calls
// go through the driver of test/plugin, which keeps all of it in guarded, poisoned memory.
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plugin/net_compat.h"
#include "test/plugin/net.h"
#include "test/unit/plugin/fake_net.h"
#include "test/unit/transport/run_suite.h"

#define GIB ((size_t)1 << 30)

/* Handles and pointers of the caller: only their addresses matter. */
static char object, handle[GEMMAR_NET_HANDLE_SIZE], buffer[8], registration[8], profiled;

static struct net open_version(int api)
{
    static const void *const tables[] = {
        &ncclNetPlugin_v6,  &ncclNetPlugin_v7,  &ncclNetPlugin_v8,  &ncclNetPlugin_v9,
        &ncclNetPlugin_v10, &ncclNetPlugin_v11, &ncclNetPlugin_v12,
    };
    struct net net = {
        .api = api,
        .table = tables[api - NET_OLDEST],
        .calls = net_calls_of(api),
    };

    net.name = *(const char *const *)net.table;
    return net;
}

static struct net init_version(int api)
{
    struct net net = open_version(api);
    void *ctx;

    ck_assert_int_eq(net_init(&net, 0, NET_NO_TC, &ctx), GEMMAR_NCCL_SUCCESS);
    return net;
}

static void reset(void)
{
    memset(&fake, 0, sizeof(fake));
    fake.props = (struct gemmar_net_props_v12){
        .name = "mlx5_7",
        .pci_path = "/sys/devices/somewhere",
        .guid = 0x1122334455667788,
        .ptr_support = 5,
        .reg_is_global = 11,
        .force_flush = 12,
        .speed = 400000,
        .port = 13,
        .latency = 2.5f,
        .max_comms = 14,
        .max_recvs = 15,
        .device_type = 16,
        .device_version = 17,
        .vprops = {.ndevs = 4, .devs = {20, 21, 22, 23}},
        .max_p2p_bytes = (size_t)3 << 33,
        .max_coll_bytes = (size_t)5 << 34,
        .max_multi_request_size = 18,
        .rail_id = -300,
        .plane_id = 301,
    };
}

START_TEST(table_is_complete)
{
    struct net net = open_version(_i);

    ck_assert_str_eq(net.name, "Gemmar");
    ck_assert_ptr_null(net_missing(&net));
}
END_TEST

/* NCCL calls these where they are not NULL. */
START_TEST(no_table_claims_device_code)
{
    ck_assert(!ncclNetPlugin_v7.get_device_mr && !ncclNetPlugin_v7.irecv_consumed);
    ck_assert(!ncclNetPlugin_v8.get_device_mr && !ncclNetPlugin_v8.irecv_consumed);
    ck_assert(!ncclNetPlugin_v9.get_device_mr && !ncclNetPlugin_v9.irecv_consumed);
    ck_assert(!ncclNetPlugin_v10.get_device_mr && !ncclNetPlugin_v10.irecv_consumed);
    ck_assert(!ncclNetPlugin_v11.get_device_mr && !ncclNetPlugin_v11.irecv_consumed);
    ck_assert(!ncclNetPlugin_v12.get_device_mr && !ncclNetPlugin_v12.irecv_consumed);
    ck_assert(!ncclNetPlugin_v11.set_net_attr && !ncclNetPlugin_v12.set_net_attr);
}
END_TEST

static void check_newer_properties(const struct net *net, const struct net_props *p)
{
    int i;

    if (net->api >= 7) {
        ck_assert_int_eq(p->device_type, 16);
        ck_assert_int_eq(p->device_version, 17);
    }
    if (net->api >= 8) {
        ck_assert_int_eq(p->reg_is_global, 11);
    }
    if (net->api >= 9) {
        ck_assert_int_eq(p->force_flush, 12);
        ck_assert_int_eq(p->vdevs, 4);
        for (i = 0; i < 4; i++) {
            ck_assert_int_eq(p->vdev[i], 20 + i);
        }
        ck_assert_uint_eq(p->max_p2p_bytes, (size_t)3 << 33);
        ck_assert_uint_eq(p->max_coll_bytes, (size_t)5 << 34);
    }
    if (net->api >= 11) {
        ck_assert_int_eq(p->max_multi_request, 18);
    }
    if (net->api >= 12) {
        ck_assert_int_eq(p->rail, -300);
        ck_assert_int_eq(p->plane, 301);
    }
}

START_TEST(l01_every_property_at_its_own_offset)
{
    struct net net = open_version(_i);
    struct net_props p;
    int count = 0;

    ck_assert_int_eq(net_devices(&net, &count), GEMMAR_NCCL_SUCCESS);
    ck_assert_int_eq(count, FAKE_DEVICES);
    ck_assert_int_eq(net_properties(&net, 2, &p), GEMMAR_NCCL_SUCCESS);
    ck_assert_msg(!p.unset, "%s was not written", p.unset);
    ck_assert_int_eq(fake.dev, 2);
    ck_assert_str_eq(p.name, "mlx5_7");
    ck_assert_str_eq(p.pci_path, "/sys/devices/somewhere");
    ck_assert_uint_eq(p.guid, 0x1122334455667788);
    ck_assert_int_eq(p.ptr_support, 5);
    ck_assert_int_eq(p.speed, 400000);
    ck_assert_int_eq(p.port, 13);
    ck_assert(p.latency == 2.5f);
    ck_assert_int_eq(p.max_comms, 14);
    ck_assert_int_eq(p.max_recvs, 15);
    check_newer_properties(&net, &p);
}
END_TEST

START_TEST(l01_bad_index_writes_nothing)
{
    static const int bad[] = {-1, FAKE_DEVICES, INT_MIN, INT_MAX};
    struct net net = open_version(_i);
    struct net_props p;
    size_t i;

    for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        ck_assert_int_eq(net_properties(&net, bad[i], &p), GEMMAR_NCCL_INVALID_ARGUMENT);
        ck_assert_ptr_nonnull(p.unset);
    }
}
END_TEST

/* A virtual NIC of eight, made through v12. */
START_TEST(l01_more_members_than_the_version_holds)
{
    struct net net = open_version(_i);
    struct net_props p;

    fake.props.vprops.ndevs = 8;
    fake.props.vprops.devs[7] = 27;
    if (_i >= 9 && _i <= 11) {
        ck_assert_int_eq(net_properties(&net, 1, &p), GEMMAR_NCCL_INVALID_ARGUMENT);
        ck_assert_ptr_nonnull(p.unset);
        return;
    }
    ck_assert_int_eq(net_properties(&net, 1, &p), GEMMAR_NCCL_SUCCESS);
    ck_assert_ptr_null(p.unset);
    if (_i == 12) {
        ck_assert_int_eq(p.vdevs, 8);
        ck_assert_int_eq(p.vdev[7], 27);
    }
}
END_TEST

START_TEST(virtual_nic_takes_the_members_of_the_version)
{
    static const int members[] = {3, 1, 4, 1, 5, 9, 2, 6};
    int n = _i == 12 ? 8 : 4, i, dev = -1;
    struct net net = open_version(_i);

    ck_assert_int_eq(net_make_vdevice(&net, n, members, &dev), GEMMAR_NCCL_SUCCESS);
    ck_assert_int_eq(dev, FAKE_DEVICES);
    ck_assert_int_eq(fake.members.ndevs, n);
    for (i = 0; i < 8; i++) {
        ck_assert_int_eq(fake.members.devs[i], i < n ? members[i] : 0);
    }
    ck_assert_int_eq(net_make_vdevice(&net, 2, members, &dev), GEMMAR_NCCL_SUCCESS);
    ck_assert_int_eq(fake.members.ndevs, 2);
    ck_assert_int_eq(fake.members.devs[1], 1);
}
END_TEST

START_TEST(virtual_nic_of_a_bad_count_is_refused)
{
    static const int bad[] = {5, 8, INT_MAX, -1, INT_MIN};
    int (*const make[])(int *, const struct gemmar_net_vprops_v9 *) = {
        ncclNetPlugin_v9.make_vdevice, ncclNetPlugin_v10.make_vdevice,
        ncclNetPlugin_v11.make_vdevice};
    struct gemmar_net_vprops_v9 *members = guard_place(GUARD_STRUCT, sizeof(*members));
    int dev = -1;
    size_t i, version;

    for (version = 0; version < sizeof(make) / sizeof(*make); version++) {
        for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
            members->ndevs = bad[i];
            ck_assert_int_eq(make[version](&dev, members), GEMMAR_NCCL_INVALID_ARGUMENT);
        }
    }
    ck_assert_int_eq(fake.calls, 0);
    ck_assert_int_eq(dev, -1);
}
END_TEST

START_TEST(registration_sizes)
{
    struct net net = open_version(_i);
    size_t large = _i <= 7 ? INT_MAX : 3 * GIB;
    void *mh = NULL;

    ck_assert_int_eq(net_reg(&net, &object, buffer, large, &mh), GEMMAR_NCCL_SUCCESS);
    ck_assert_str_eq(fake.call, "reg_mr");
    ck_assert_ptr_eq(fake.object, &object);
    ck_assert_ptr_eq(fake.data, buffer);
    ck_assert_uint_eq(fake.size, large);
    ck_assert_int_eq(fake.type, GEMMAR_NET_PTR_HOST);
    ck_assert_ptr_eq(mh, &fake.registration);
    ck_assert_int_eq(net_dereg(&net, &object, mh), GEMMAR_NCCL_SUCCESS);
    ck_assert_str_eq(fake.call, "dereg_mr");
    ck_assert_ptr_eq(fake.object, &object);
    ck_assert_ptr_eq(fake.mhandle, mh);
    if (_i <= 7) {
        fake.calls = 0;
        ck_assert_int_eq(net_reg(&net, &object, buffer, SIZE_MAX, &mh),
                         GEMMAR_NCCL_INVALID_ARGUMENT);
        ck_assert_int_eq(fake.calls, 0);
    }
}
END_TEST

START_TEST(dmabuf_registration_is_wide_in_every_version)
{
    int (*const reg[])(void *, void *, size_t, int, uint64_t, int,
                       void **) = {ncclNetPlugin_v6.reg_mr_dmabuf,  ncclNetPlugin_v7.reg_mr_dmabuf,
                                   ncclNetPlugin_v8.reg_mr_dmabuf,  ncclNetPlugin_v9.reg_mr_dmabuf,
                                   ncclNetPlugin_v10.reg_mr_dmabuf, ncclNetPlugin_v11.reg_mr_dmabuf,
                                   ncclNetPlugin_v12.reg_mr_dmabuf};
    void *mh = NULL;

    ck_assert_int_eq(reg[_i - NET_OLDEST](&object, buffer, 5 * GIB, GEMMAR_NET_PTR_CUDA,
                                          (uint64_t)7 << 40, 9, &mh),
                     GEMMAR_NCCL_SUCCESS);
    ck_assert_str_eq(fake.call, "reg_mr_dmabuf");
    ck_assert_ptr_eq(fake.object, &object);
    ck_assert_ptr_eq(fake.data, buffer);
    ck_assert_uint_eq(fake.size, 5 * GIB);
    ck_assert_int_eq(fake.type, GEMMAR_NET_PTR_CUDA);
    ck_assert_uint_eq(fake.offset, (uint64_t)7 << 40);
    ck_assert_int_eq(fake.fd, 9);
    ck_assert_ptr_eq(mh, &fake.registration);
}
END_TEST

START_TEST(send_sizes)
{
    struct net net = open_version(_i);
    size_t large = _i <= 8 ? INT_MAX : 3 * GIB;
    void *request = NULL;

    fake.phandle = &object; /* must become NULL: the driver gives none */
    ck_assert_int_eq(net_isend(&net, &object, buffer, large, -77, registration, &request),
                     GEMMAR_NCCL_SUCCESS);
    ck_assert_ptr_eq(fake.object, &object);
    ck_assert_ptr_eq(fake.data, buffer);
    ck_assert_uint_eq(fake.size, large);
    ck_assert_int_eq(fake.tag, -77);
    ck_assert_ptr_eq(fake.mhandle, registration);
    ck_assert_ptr_null(fake.phandle);
    ck_assert_ptr_eq(request, &fake.request);
    if (_i <= 8) {
        fake.calls = 0;
        ck_assert_int_eq(net_isend(&net, &object, buffer, SIZE_MAX, 0, registration, &request),
                         GEMMAR_NCCL_INVALID_ARGUMENT);
        ck_assert_int_eq(fake.calls, 0);
    }
}
END_TEST

START_TEST(grouped_receive_sizes)
{
    struct net net = open_version(_i);
    size_t sizes[FAKE_RECVS];
    int tags[FAKE_RECVS], i;
    void *data[FAKE_RECVS], *mhs[FAKE_RECVS], *request = NULL;

    for (i = 0; i < FAKE_RECVS; i++) {
        data[i] = &buffer[i];
        mhs[i] = &registration[i];
        sizes[i] = i == 7 ? 0 : (_i <= 8 ? (size_t)INT_MAX : 3 * GIB) - (size_t)i;
        tags[i] = -i;
    }
    fake.phandles = data; /* must change */
    ck_assert_int_eq(net_irecv(&net, &object, FAKE_RECVS, data, sizes, tags, mhs, &request),
                     GEMMAR_NCCL_SUCCESS);
    ck_assert_ptr_eq(fake.object, &object);
    ck_assert_int_eq(fake.n, FAKE_RECVS);
    ck_assert_mem_eq(fake.datas, data, sizeof(data));
    ck_assert_mem_eq(fake.sizes, sizes, sizeof(sizes));
    ck_assert_mem_eq(fake.tags, tags, sizeof(tags));
    ck_assert_mem_eq(fake.mhandles, mhs, sizeof(mhs));
    ck_assert_ptr_eq(request, &fake.request);
    if (_i <= 9) {
        ck_assert_ptr_null(fake.phandles);
    }
}
END_TEST

/* Before v9 *request is what an earlier call left there, also where it looks like the sentinel. */
START_TEST(optional_completion_counts_from_v9_on)
{
    struct net net = open_version(_i);
    void *data = buffer, *mh = registration, *request = NET_OPTIONAL;
    size_t size = 1;
    int tag = 0;

    ck_assert_int_eq(net_irecv(&net, &object, 1, &data, &size, &tag, &mh, &request),
                     GEMMAR_NCCL_SUCCESS);
    ck_assert_ptr_eq(fake.request_in, _i >= 9 ? NET_OPTIONAL : NULL);
    request = &object;
    ck_assert_int_eq(net_irecv(&net, &object, 1, &data, &size, &tag, &mh, &request),
                     GEMMAR_NCCL_SUCCESS);
    ck_assert_ptr_eq(fake.request_in, _i >= 9 ? &object : NULL);
    request = &object;
    fake.result = GEMMAR_NCCL_REMOTE_ERROR;
    ck_assert_int_eq(net_irecv(&net, &object, 1, &data, &size, &tag, &mh, &request),
                     GEMMAR_NCCL_REMOTE_ERROR);
    if (_i <= 8) {
        ck_assert_ptr_null(request);
    }
}
END_TEST

START_TEST(bad_receives_of_int_size_are_refused)
{
    static const int bad_n[] = {0, -1, INT_MIN, FAKE_RECVS + 1, INT_MAX};
    int (*const irecv[])(void *, int, void **, int *, int *, void **, void **) = {
        ncclNetPlugin_v6.irecv, ncclNetPlugin_v7.irecv, ncclNetPlugin_v8.irecv};
    int sizes[FAKE_RECVS + 1] = {0}, tags[FAKE_RECVS + 1] = {0};
    void *data[FAKE_RECVS + 1] = {0}, *mhs[FAKE_RECVS + 1] = {0}, *request;
    size_t version, i;

    for (version = 0; version < sizeof(irecv) / sizeof(*irecv); version++) {
        sizes[1] = 0;
        for (i = 0; i < sizeof(bad_n) / sizeof(*bad_n); i++) {
            request = &object;
            ck_assert_int_eq(irecv[version](&object, bad_n[i], data, sizes, tags, mhs, &request),
                             GEMMAR_NCCL_INVALID_ARGUMENT);
            ck_assert_ptr_null(request);
        }
        sizes[1] = INT_MIN;
        ck_assert_int_eq(irecv[version](&object, 2, data, sizes, tags, mhs, &request),
                         GEMMAR_NCCL_INVALID_ARGUMENT);
    }
    ck_assert_int_eq(fake.calls, 0);
}
END_TEST

START_TEST(profiler_handles_are_passed_from_v10_on)
{
    int (*const isend[])(void *, void *, size_t, int, void *, void *, void **) = {
        ncclNetPlugin_v10.isend, ncclNetPlugin_v11.isend, ncclNetPlugin_v12.isend};
    int (*const irecv[])(void *, int, void **, size_t *, int *, void **, void **, void **) = {
        ncclNetPlugin_v10.irecv, ncclNetPlugin_v11.irecv, ncclNetPlugin_v12.irecv};
    void *data = buffer, *mh = registration, *request = NULL, *phandle = &profiled;
    size_t size = 1;
    int tag = 0;

    ck_assert_int_eq(isend[_i - 10](&object, buffer, 1, 0, mh, phandle, &request),
                     GEMMAR_NCCL_SUCCESS);
    ck_assert_ptr_eq(fake.phandle, &profiled);
    ck_assert_int_eq(irecv[_i - 10](&object, 1, &data, &size, &tag, &mh, &phandle, &request),
                     GEMMAR_NCCL_SUCCESS);
    ck_assert_ptr_eq(fake.phandles, &phandle);
}
END_TEST

START_TEST(flush_test_and_close)
{
    struct net net = open_version(_i);
    void *data = buffer, *mh = registration, *request = NULL;
    int size = 123, done = 0, sizes[2] = {0};

    ck_assert_int_eq(net_iflush(&net, &object, 1, &data, &size, &mh, &request),
                     GEMMAR_NCCL_SUCCESS);
    ck_assert_str_eq(fake.call, "iflush");
    ck_assert_ptr_eq(fake.datas[0], buffer);
    ck_assert_uint_eq(fake.sizes[0], 123);
    ck_assert_ptr_eq(fake.mhandles[0], registration);
    ck_assert_ptr_eq(request, &fake.request);
    ck_assert_int_eq(net_test(&net, request, &done, 2, sizes), GEMMAR_NCCL_SUCCESS);
    ck_assert_str_eq(fake.call, "test");
    ck_assert_ptr_eq(fake.object, &fake.request);
    ck_assert_int_eq(done, 1);
    ck_assert_ptr_nonnull(fake.out_sizes);
    ck_assert_int_eq(net_test(&net, request, &done, 0, NULL), GEMMAR_NCCL_SUCCESS);
    ck_assert_ptr_null(fake.out_sizes);
    ck_assert_int_eq(net_close_send(&net, &object), GEMMAR_NCCL_SUCCESS);
    ck_assert_str_eq(fake.call, "close_send");
    ck_assert_int_eq(net_close_recv(&net, &object), GEMMAR_NCCL_SUCCESS);
    ck_assert_str_eq(fake.call, "close_recv");
    ck_assert_int_eq(net_close_listen(&net, &object), GEMMAR_NCCL_SUCCESS);
    ck_assert_str_eq(fake.call, "close_listen");
    ck_assert_ptr_eq(fake.object, &object);
}
END_TEST

START_TEST(errors_come_through)
{
    struct net net = init_version(_i);
    struct net_props p;
    void *out, *data = buffer, *mh = registration;
    int done, size = 1, dev;

    fake.result = GEMMAR_NCCL_REMOTE_ERROR;
    ck_assert_int_eq(net_devices(&net, &done), GEMMAR_NCCL_REMOTE_ERROR);
    ck_assert_int_eq(net_properties(&net, 0, &p), GEMMAR_NCCL_REMOTE_ERROR);
    ck_assert_ptr_nonnull(p.unset);
    ck_assert_int_eq(net_listen(&net, &object, 0, handle, &out), GEMMAR_NCCL_REMOTE_ERROR);
    ck_assert_int_eq(net_connect(&net, &object, 0, NET_NO_TC, handle, &out),
                     GEMMAR_NCCL_REMOTE_ERROR);
    ck_assert_int_eq(net_accept(&net, &object, &out), GEMMAR_NCCL_REMOTE_ERROR);
    ck_assert_int_eq(net_reg(&net, &object, buffer, 1, &out), GEMMAR_NCCL_REMOTE_ERROR);
    ck_assert_int_eq(net_dereg(&net, &object, &object), GEMMAR_NCCL_REMOTE_ERROR);
    ck_assert_int_eq(net_isend(&net, &object, buffer, 1, 0, mh, &out), GEMMAR_NCCL_REMOTE_ERROR);
    ck_assert_int_eq(net_iflush(&net, &object, 1, &data, &size, &mh, &out),
                     GEMMAR_NCCL_REMOTE_ERROR);
    ck_assert_int_eq(net_test(&net, &object, &done, 0, NULL), GEMMAR_NCCL_REMOTE_ERROR);
    ck_assert_int_eq(net_close_send(&net, &object), GEMMAR_NCCL_REMOTE_ERROR);
    if (_i >= 9) {
        ck_assert_int_eq(net_make_vdevice(&net, 1, &size, &dev), GEMMAR_NCCL_REMOTE_ERROR);
    }
    if (_i >= 11) {
        ck_assert_int_eq(net_finalize(&net, &object), GEMMAR_NCCL_REMOTE_ERROR);
    }
}
END_TEST

/* No context in the calls: all communicators share the one that the first init made. */
START_TEST(old_versions_share_one_context)
{
    struct net net = open_version(_i);
    void *ctx, *comm;

    fake.result = GEMMAR_NCCL_SYSTEM_ERROR;
    ck_assert_int_eq(net_init(&net, 0, 106, &ctx), GEMMAR_NCCL_SYSTEM_ERROR);
    fake.result = GEMMAR_NCCL_SUCCESS;
    ck_assert_int_eq(net_init(&net, 0, 106, &ctx), GEMMAR_NCCL_SUCCESS);
    ck_assert_int_eq(net_init(&net, 0, 106, &ctx), GEMMAR_NCCL_SUCCESS);
    ck_assert_int_eq(fake.inits, 2);
    ck_assert_int_eq(fake.version, _i);
    ck_assert_int_eq(fake.has_config, 0);
    ck_assert(fake.logger == net_say);
    ck_assert_int_eq(net_listen(&net, NULL, 2, handle, &comm), GEMMAR_NCCL_SUCCESS);
    ck_assert_ptr_eq(fake.object, &fake.contexts[1]);
    ck_assert_int_eq(fake.dev, 2);
    ck_assert_ptr_eq(fake.handle, handle);
    ck_assert_ptr_eq(comm, &fake.comm);
    ck_assert_int_eq(net_connect(&net, NULL, 1, NET_NO_TC, handle, &comm), GEMMAR_NCCL_SUCCESS);
    ck_assert_ptr_eq(fake.object, &fake.contexts[1]);
    ck_assert_int_eq(fake.dev, 1);
}
END_TEST

START_TEST(old_versions_have_a_context_each)
{
    struct net first = init_version(_i), second = init_version(_i + 1);
    void *comm;

    ck_assert_int_eq(fake.inits, 2);
    ck_assert_int_eq(net_listen(&first, NULL, 0, handle, &comm), GEMMAR_NCCL_SUCCESS);
    ck_assert_ptr_eq(fake.object, &fake.contexts[0]);
    ck_assert_int_eq(net_listen(&second, NULL, 0, handle, &comm), GEMMAR_NCCL_SUCCESS);
    ck_assert_ptr_eq(fake.object, &fake.contexts[1]);
}
END_TEST

static void *init_beside_others(void *unused)
{
    (void)unused;
    return ncclNetPlugin_v9.init(net_say) == GEMMAR_NCCL_SUCCESS ? NULL : &object;
}

START_TEST(inits_of_several_threads_make_one_context)
{
    pthread_t threads[8];
    void *failed;
    size_t i;

    for (i = 0; i < 8; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, init_beside_others, NULL), 0);
    }
    for (i = 0; i < 8; i++) {
        ck_assert_int_eq(pthread_join(threads[i], &failed), 0);
        ck_assert_ptr_null(failed);
    }
    ck_assert_int_eq(fake.inits, 1);
}
END_TEST

static int profiler(void **event, int action, void *phandle, int64_t id, void *descriptor)
{
    (void)event, (void)action, (void)phandle, (void)id, (void)descriptor;
    return GEMMAR_NCCL_SUCCESS;
}

START_TEST(profiler_reaches_init_from_v10_on)
{
    struct gemmar_net_config config = {.traffic_class = 5};
    void *ctx;

    ck_assert_int_eq(ncclNetPlugin_v10.init(net_say, profiler), GEMMAR_NCCL_SUCCESS);
    ck_assert(fake.profiler == profiler && fake.logger == net_say);
    fake.profiler = NULL;
    ck_assert_int_eq(ncclNetPlugin_v11.init(&ctx, 1, &config, net_say, profiler),
                     GEMMAR_NCCL_SUCCESS);
    ck_assert(fake.profiler == profiler && fake.logger == net_say);
    fake.profiler = NULL;
    ck_assert_int_eq(ncclNetPlugin_v12.init(&ctx, 1, &config, net_say, profiler),
                     GEMMAR_NCCL_SUCCESS);
    ck_assert(fake.profiler == profiler && fake.logger == net_say);
}
END_TEST

static size_t lines_in(FILE *file)
{
    size_t lines = 0;
    int c;

    rewind(file);
    while ((c = getc(file)) != EOF) {
        lines += c == '\n';
    }
    return lines;
}

START_TEST(each_refusal_is_one_sentence)
{
    const struct gemmar_net_vprops_v9 members = {.ndevs = 5};
    struct gemmar_net_props_v9 props;
    void *out = NULL, *data = buffer, *mh = registration;
    int size = -1, tag = 0, dev, kept = dup(STDERR_FILENO);
    FILE *said = tmpfile();

    fake.props.vprops.ndevs = 8;
    ck_assert(said && dup2(fileno(said), STDERR_FILENO) >= 0);
    (void)ncclNetPlugin_v9.make_vdevice(&dev, &members);
    (void)ncclNetPlugin_v9.get_properties(0, &props);
    (void)ncclNetPlugin_v7.reg_mr(&object, buffer, size, GEMMAR_NET_PTR_HOST, &out);
    (void)ncclNetPlugin_v8.isend(&object, buffer, size, tag, mh, &out);
    (void)ncclNetPlugin_v8.irecv(&object, 1, &data, &size, &tag, &mh, &out);
    (void)ncclNetPlugin_v8.irecv(&object, 9, &data, &size, &tag, &mh, &out);
    (void)dup2(kept, STDERR_FILENO);
    ck_assert_uint_eq(lines_in(said), 6);
    (void)fclose(said);
    (void)close(kept);
}
END_TEST

/* The same communicator may come twice: each init has a context and a traffic class of its own. */
START_TEST(l05_contexts_keep_their_traffic_class)
{
    struct net net = open_version(_i);
    void *first, *second, *comm;

    ck_assert_int_eq(net_init(&net, 42, 106, &first), GEMMAR_NCCL_SUCCESS);
    ck_assert_int_eq(fake.version, _i);
    ck_assert_int_eq(fake.traffic_class, 106);
    ck_assert_int_eq(net_init(&net, 42, NET_NO_TC, &second), GEMMAR_NCCL_SUCCESS);
    ck_assert_int_eq(fake.traffic_class, -1);
    ck_assert_int_eq(fake.inits, 2);
    ck_assert_ptr_ne(first, second);
    ck_assert_int_eq(net_connect(&net, first, 2, 77, handle, &comm), GEMMAR_NCCL_SUCCESS);
    ck_assert_ptr_eq(fake.object, first);
    ck_assert_int_eq(fake.traffic_class, -1);
    ck_assert_int_eq(fake.dev, 2);
    ck_assert_ptr_eq(fake.handle, handle);
    ck_assert_ptr_eq(comm, &fake.comm);
    ck_assert_int_eq(net_listen(&net, second, 1, handle, &comm), GEMMAR_NCCL_SUCCESS);
    ck_assert_ptr_eq(fake.object, second);
    ck_assert_int_eq(net_finalize(&net, first), GEMMAR_NCCL_SUCCESS);
    ck_assert_str_eq(fake.call, "finalize");
    ck_assert_ptr_eq(fake.object, first);
}
END_TEST

START_TEST(l05_traffic_class_of_a_connection_before_v11)
{
    struct net net = init_version(_i);
    void *comm;

    fake.traffic_class = 99;
    ck_assert_int_eq(net_connect(&net, NULL, 0, 77, handle, &comm), GEMMAR_NCCL_SUCCESS);
    ck_assert_int_eq(fake.traffic_class, _i == 10 ? 77 : -1);
    if (_i == 10) {
        ck_assert_int_eq(net_connect(&net, NULL, 0, NET_NO_TC, handle, &comm), GEMMAR_NCCL_SUCCESS);
        ck_assert_int_eq(fake.traffic_class, -1);
        fake.traffic_class = 99;
        ck_assert_int_eq(ncclNetPlugin_v10.connect(0, NULL, handle, &comm, NULL),
                         GEMMAR_NCCL_SUCCESS);
        ck_assert_int_eq(fake.traffic_class, -1);
    }
}
END_TEST

/* NCCL takes what it finds there for an offer of device code. */
START_TEST(device_comm_is_cleared_where_given)
{
    struct gemmar_net_device_handle stale = {0}, *device = &stale;
    void *comm = NULL;
    struct net net = init_version(_i);
    int (*const accept[])(void *, void **, struct gemmar_net_device_handle **) = {
        ncclNetPlugin_v7.accept,  ncclNetPlugin_v8.accept,  ncclNetPlugin_v9.accept,
        ncclNetPlugin_v10.accept, ncclNetPlugin_v11.accept, ncclNetPlugin_v12.accept};

    ck_assert_int_eq(accept[net.api - 7](&object, &comm, &device), GEMMAR_NCCL_SUCCESS);
    ck_assert_ptr_null(device);
    ck_assert_ptr_eq(fake.object, &object);
    ck_assert_ptr_eq(comm, &fake.comm);
    ck_assert_int_eq(accept[net.api - 7](&object, &comm, NULL), GEMMAR_NCCL_SUCCESS);
}
END_TEST

START_TEST(connect_clears_the_device_comm_where_given)
{
    struct gemmar_net_device_handle stale = {0}, *device;
    void *comm = NULL;

#define CLEARS(table, ...)                                                                         \
    device = &stale;                                                                               \
    ck_assert_int_eq(table.connect(__VA_ARGS__, handle, &comm, &device), GEMMAR_NCCL_SUCCESS);     \
    ck_assert_ptr_null(device);                                                                    \
    ck_assert_int_eq(table.connect(__VA_ARGS__, handle, &comm, NULL), GEMMAR_NCCL_SUCCESS)
    CLEARS(ncclNetPlugin_v7, 0);
    CLEARS(ncclNetPlugin_v8, 0);
    CLEARS(ncclNetPlugin_v9, 0);
    CLEARS(ncclNetPlugin_v10, 0, NULL);
    CLEARS(ncclNetPlugin_v11, &object, 0);
    CLEARS(ncclNetPlugin_v12, &object, 0);
#undef CLEARS
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("net_versions");

    tcase_add_checked_fixture(t, reset, NULL);
    tcase_add_loop_test(t, table_is_complete, 6, 13);
    tcase_add_test(t, no_table_claims_device_code);
    tcase_add_loop_test(t, l01_every_property_at_its_own_offset, 6, 13);
    tcase_add_loop_test(t, l01_bad_index_writes_nothing, 6, 13);
    tcase_add_loop_test(t, l01_more_members_than_the_version_holds, 6, 13);
    tcase_add_loop_test(t, virtual_nic_takes_the_members_of_the_version, 9, 13);
    tcase_add_test(t, virtual_nic_of_a_bad_count_is_refused);
    tcase_add_loop_test(t, registration_sizes, 6, 13);
    tcase_add_loop_test(t, dmabuf_registration_is_wide_in_every_version, 6, 13);
    tcase_add_loop_test(t, send_sizes, 6, 13);
    tcase_add_loop_test(t, grouped_receive_sizes, 6, 13);
    tcase_add_loop_test(t, optional_completion_counts_from_v9_on, 6, 13);
    tcase_add_test(t, bad_receives_of_int_size_are_refused);
    tcase_add_test(t, each_refusal_is_one_sentence);
    tcase_add_loop_test(t, profiler_handles_are_passed_from_v10_on, 10, 13);
    tcase_add_loop_test(t, flush_test_and_close, 6, 13);
    tcase_add_loop_test(t, errors_come_through, 6, 13);
    tcase_add_loop_test(t, old_versions_share_one_context, 6, 11);
    tcase_add_loop_test(t, old_versions_have_a_context_each, 6, 10);
    tcase_add_test(t, inits_of_several_threads_make_one_context);
    tcase_add_test(t, profiler_reaches_init_from_v10_on);
    tcase_add_loop_test(t, l05_contexts_keep_their_traffic_class, 11, 13);
    tcase_add_loop_test(t, l05_traffic_class_of_a_connection_before_v11, 6, 11);
    tcase_add_loop_test(t, device_comm_is_cleared_where_given, 7, 13);
    tcase_add_test(t, connect_clears_the_device_comm_where_given);
    return run_suite("net_versions", t, 20);
}
