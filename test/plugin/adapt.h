// SPDX-License-Identifier: Apache-2.0
// The calls of one API version in the shape of v12. No guard: adapt.c includes this once for each
// version, with V the version and FN(name) the name of a function of it.
#define TABLE    GLUE(struct gemmar_net_table_v, V)
#define CALL(fn) (((const TABLE *)net->table)->fn)
#if V <= 8
#define PROPS GLUE(struct gemmar_net_props_v, V)
#elif V <= 10
#define PROPS struct gemmar_net_props_v9
#elif V == 11
#define PROPS struct gemmar_net_props_v11
#else
#define PROPS struct gemmar_net_props_v12
#endif
#if V <= 7
#define REG_SIZE int
#else
#define REG_SIZE size_t
#endif
#if V <= 8
#define SIZE int
#else
#define SIZE size_t
#endif

static int FN(init)(struct net *net, uint64_t id, int traffic_class, void **out_ctx)
{
    *out_ctx = NULL;
#if V <= 9
    (void)id, (void)traffic_class;
    return CALL(init)(net_say);
#elif V == 10
    (void)id, (void)traffic_class;
    return CALL(init)(net_say, NULL);
#else
    struct gemmar_net_config *config = guard_copy(GUARD_STRUCT, &traffic_class, sizeof *config);
    void **out = guard_place(GUARD_OUT, sizeof *out);
    int rc = CALL(init)(out, id, config, net_say, NULL);
    *out_ctx = rc ? NULL : *out;
    return rc;
#endif
}

static int FN(devices)(struct net *net, int *out_count)
{
    int *out = guard_place(GUARD_OUT, sizeof *out);
    int rc = CALL(devices)(out);
    *out_count = *out;
    return rc;
}

static int FN(properties)(struct net *net, int dev, struct net_props *out_props)
{
    PROPS *p = guard_place(GUARD_STRUCT, sizeof *p);
    int rc = CALL(get_properties)(dev, p);
    struct net_props q = {
        .vdevs = 1, .vdev = {dev}, .max_p2p_bytes = INT_MAX, .rail = -1, .plane = -1};
    if (rc) {
        q.unset = guard_untouched(p, sizeof *p) ? "all" : NULL;
        *out_props = q;
        return rc;
    }
#define TAKE(to, field)                                                                            \
    q.unset = guard_untouched(&p->field, sizeof p->field) ? #field : q.unset;                      \
    q.to = p->field
    TAKE(name, name);
    TAKE(pci_path, pci_path);
    TAKE(guid, guid);
    TAKE(ptr_support, ptr_support);
    TAKE(speed, speed);
    TAKE(port, port);
    TAKE(latency, latency);
    TAKE(max_comms, max_comms);
    TAKE(max_recvs, max_recvs);
#if V >= 7
    TAKE(device_type, device_type);
    TAKE(device_version, device_version);
#endif
#if V >= 8
    TAKE(reg_is_global, reg_is_global);
#endif
#if V >= 9
    TAKE(force_flush, force_flush);
    TAKE(vdevs, vprops.ndevs);
    int room = (int)(sizeof p->vprops.devs / sizeof *p->vprops.devs);
    for (int i = 0; i < room && i < q.vdevs; i++) {
        TAKE(vdev[i], vprops.devs[i]);
    }
    TAKE(max_p2p_bytes, max_p2p_bytes);
    TAKE(max_coll_bytes, max_coll_bytes);
#endif
#if V >= 11
    TAKE(max_multi_request, max_multi_request_size);
#endif
#if V >= 12
    TAKE(rail, rail_id);
    TAKE(plane, plane_id);
#endif
#undef TAKE
    *out_props = q;
    return rc;
}

static int FN(listen)(struct net *net, void *ctx, int dev, void *handle, void **out_comm)
{
    void **out = guard_place(GUARD_OUT, sizeof *out);
#if V <= 10
    (void)ctx;
    int rc = CALL(listen)(dev, handle, out);
#else
    int rc = CALL(listen)(ctx, dev, handle, out);
#endif
    *out_comm = rc ? NULL : *out;
    return rc;
}

static int FN(connect)(struct net *net, void *ctx, int dev, int traffic_class, void *handle,
                       void **out_comm)
{
    void **out = guard_place(GUARD_OUT, sizeof *out);
    *out = NULL; // as NCCL does
#if V >= 7
    struct gemmar_net_device_handle **device = guard_place(GUARD_DATA, sizeof *device);
    *device = NULL;
#endif
#if V == 6
    (void)ctx, (void)traffic_class;
    int rc = CALL(connect)(dev, handle, out);
#elif V <= 9
    (void)ctx, (void)traffic_class;
    int rc = CALL(connect)(dev, handle, out, device);
#elif V == 10
    (void)ctx;
    struct gemmar_net_config *config = guard_copy(GUARD_STRUCT, &traffic_class, sizeof *config);
    int rc = CALL(connect)(dev, config, handle, out, device);
#else
    (void)traffic_class;
    int rc = CALL(connect)(ctx, dev, handle, out, device);
#endif
    *out_comm = *out;
    return rc;
}

static int FN(accept)(struct net *net, void *listener, void **out_comm)
{
    void **out = guard_place(GUARD_OUT, sizeof *out);
    *out = NULL;
#if V == 6
    int rc = CALL(accept)(listener, out);
#else
    struct gemmar_net_device_handle **device = guard_place(GUARD_DATA, sizeof *device);
    *device = NULL;
    int rc = CALL(accept)(listener, out, device);
#endif
    *out_comm = *out;
    return rc;
}

static int FN(reg)(struct net *net, void *comm, void *data, size_t bytes, int type, void **out_mh)
{
    void **out = guard_place(GUARD_OUT, sizeof *out);
    int rc = CALL(reg_mr)(comm, data, (REG_SIZE)bytes, type, out);
    *out_mh = rc ? NULL : *out;
    return rc;
}

static int FN(reg_dmabuf)(struct net *net, void *comm, void *data, size_t bytes, int type,
                          uint64_t offset, int fd, void **out_mh)
{
    void **out = guard_place(GUARD_OUT, sizeof *out);
    int rc = CALL(reg_mr_dmabuf)(comm, data, bytes, type, offset, fd, out);
    *out_mh = rc ? NULL : *out;
    return rc;
}

static int FN(dereg)(struct net *net, void *comm, void *mh)
{
    return CALL(dereg_mr)(comm, mh);
}

static int FN(isend)(struct net *net, void *comm, void *data, size_t bytes, int tag, void *mh,
                     void **out_request)
{
    void **out = guard_place(GUARD_REQUEST, sizeof *out);
#if V <= 9
    int rc = CALL(isend)(comm, data, (SIZE)bytes, tag, mh, out);
#else
    int rc = CALL(isend)(comm, data, bytes, tag, mh, NULL, out);
#endif
    *out_request = *out;
    return rc;
}

static int FN(irecv)(struct net *net, void *comm, int n, void **data, size_t *bytes, int *tags,
                     void **mhs, void **request)
{
    void **out = guard_copy(GUARD_REQUEST, request, sizeof *out);
#if V <= 8
    int *sizes = guard_place(GUARD_BYTES, (size_t)n * sizeof *sizes);
    for (int i = 0; i < n; i++) {
        sizes[i] = (int)bytes[i];
    }
#else
    size_t *sizes = guard_copy(GUARD_BYTES, bytes, (size_t)n * sizeof *sizes);
#endif
#if V <= 9
    int rc = CALL(irecv)(comm, n, data, sizes, tags, mhs, out);
#else
    void **phandles = guard_place(GUARD_PHANDLES, (size_t)n * sizeof *phandles);
    memset(phandles, 0, (size_t)n * sizeof *phandles);
    int rc = CALL(irecv)(comm, n, data, sizes, tags, mhs, phandles, out);
#endif
    *request = *out;
    return rc;
}

static int FN(iflush)(struct net *net, void *comm, int n, void **data, int *bytes, void **mhs,
                      void **out_request)
{
    void **out = guard_copy(GUARD_REQUEST, out_request, sizeof *out);
    int rc = CALL(iflush)(comm, n, data, bytes, mhs, out);
    *out_request = *out;
    return rc;
}

static int FN(test)(struct net *net, void *request, int *out_done, int *out_bytes)
{
    return CALL(test)(request, out_done, out_bytes);
}

static int FN(close_send)(struct net *net, void *comm)
{
    return CALL(close_send)(comm);
}

static int FN(close_recv)(struct net *net, void *comm)
{
    return CALL(close_recv)(comm);
}

static int FN(close_listen)(struct net *net, void *comm)
{
    return CALL(close_listen)(comm);
}

static int FN(make_vdevice)(struct net *net, int *out_dev, int n, const int *devs)
{
#if V <= 8
    (void)net, (void)out_dev, (void)n, (void)devs;
    return -1;
#else
#if V <= 11
    struct gemmar_net_vprops_v9 *members = guard_place(GUARD_STRUCT, sizeof *members);
#else
    struct gemmar_net_vprops_v12 *members = guard_place(GUARD_STRUCT, sizeof *members);
#endif
    members->ndevs = n;
    for (int i = 0; i < n; i++) {
        members->devs[i] = devs[i];
    }
    return CALL(make_vdevice)(out_dev, members);
#endif
}

static int FN(finalize)(struct net *net, void *ctx)
{
#if V <= 10
    (void)net, (void)ctx;
    return 0;
#else
    return CALL(finalize)(ctx);
#endif
}

static const char *FN(missing)(const void *table)
{
    const TABLE *t = table;
#define HAS(fn)                                                                                    \
    if (!t->fn) {                                                                                  \
        return #fn;                                                                                \
    }
    HAS(name)
    HAS(init)
    HAS(devices)
    HAS(get_properties)
    HAS(listen)
    HAS(connect)
    HAS(accept)
    HAS(reg_mr)
    HAS(reg_mr_dmabuf)
    HAS(dereg_mr)
    HAS(isend)
    HAS(irecv)
    HAS(iflush)
    HAS(test)
    HAS(close_send)
    HAS(close_recv)
    HAS(close_listen)
#if V >= 9
    HAS(make_vdevice)
#endif
#if V >= 11
    HAS(finalize)
#endif
#undef HAS
    return NULL;
}

static const struct net_calls FN(calls) = {
    .init = FN(init),
    .devices = FN(devices),
    .properties = FN(properties),
    .listen = FN(listen),
    .connect = FN(connect),
    .accept = FN(accept),
    .reg = FN(reg),
    .reg_dmabuf = FN(reg_dmabuf),
    .dereg = FN(dereg),
    .isend = FN(isend),
    .irecv = FN(irecv),
    .iflush = FN(iflush),
    .test = FN(test),
    .close_send = FN(close_send),
    .close_recv = FN(close_recv),
    .close_listen = FN(close_listen),
    .make_vdevice = FN(make_vdevice),
    .finalize = FN(finalize),
    .missing = FN(missing),
};

#undef TABLE
#undef CALL
#undef PROPS
#undef REG_SIZE
#undef SIZE
#undef V
#undef FN
