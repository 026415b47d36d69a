// SPDX-License-Identifier: Apache-2.0
// A net plugin under test, whatever its API version: the calls have the shape of v12.
// Every struct, array and word that the plugin reads or writes through a pointer lies flush against
// an inaccessible page and, where the plugin writes, is poisoned before. Each thread has places of
// its own for them.
#ifndef GEMMAR_TEST_PLUGIN_NET_H
#define GEMMAR_TEST_PLUGIN_NET_H

#include <stddef.h>
#include <stdint.h>

#define NET_OLDEST       6
#define NET_NEWEST       12
#define NET_HANDLE_BYTES 128
#define NET_MAX_RECVS    8
#define NET_POISON       0xa5
#define NET_NO_TC        (-1)
#define NET_SLOW_NS      50000000u
#define NET_OPTIONAL     ((void *)0x1) // the completion sentinel, on entry of irecv

struct net_props { // v12's; what a version lacks is as net_properties says
    const char *name, *pci_path;
    uint64_t guid;
    int ptr_support, reg_is_global, force_flush, speed, port;
    float latency;
    int max_comms, max_recvs, device_type, device_version;
    int vdevs, vdev[8];
    size_t max_p2p_bytes, max_coll_bytes;
    int max_multi_request, rail, plane;
    const char *unset; // a declared field that still holds poison only, or NULL
};

struct net;

struct net_calls { // one for each version, adapt.c
    int (*init)(struct net *net, uint64_t id, int traffic_class, void **out_ctx);
    int (*devices)(struct net *net, int *out_count);
    int (*properties)(struct net *net, int dev, struct net_props *out_props);
    int (*listen)(struct net *net, void *ctx, int dev, void *handle, void **out_comm);
    int (*connect)(struct net *net, void *ctx, int dev, int traffic_class, void *handle,
                   void **out_comm);
    int (*accept)(struct net *net, void *listener, void **out_comm);
    int (*reg)(struct net *net, void *comm, void *data, size_t bytes, int type, void **out_mh);
    int (*reg_dmabuf)(struct net *net, void *comm, void *data, size_t bytes, int type,
                      uint64_t offset, int fd, void **out_mh);
    int (*dereg)(struct net *net, void *comm, void *mh);
    int (*isend)(struct net *net, void *comm, void *data, size_t bytes, int tag, void *mh,
                 void **out_request);
    int (*irecv)(struct net *net, void *comm, int n, void **data, size_t *bytes, int *tags,
                 void **mhs, void **request);
    int (*iflush)(struct net *net, void *comm, int n, void **data, int *bytes, void **mhs,
                  void **out_request);
    int (*test)(struct net *net, void *request, int *out_done, int *out_bytes);
    int (*close_send)(struct net *net, void *comm);
    int (*close_recv)(struct net *net, void *comm);
    int (*close_listen)(struct net *net, void *comm);
    int (*make_vdevice)(struct net *net, int *out_dev, int n, const int *devs);
    int (*finalize)(struct net *net, void *ctx);
    const char *(*missing)(const void *table); // name of a mandatory NULL member, or NULL
};

struct net {
    int api;
    int reference; // 1: NCCL's own table
    void *lib;
    const void *table;
    const char *name;
    const struct net_calls *calls;
    uint64_t slowest_ns;      // longest connect or accept so far
    const char *slowest_call; // which
    unsigned slow_calls;      // connects and accepts of more than NET_SLOW_NS
};

// Opens the library ("nccl": libnccl's hidden table, v11 only) and finds the table of the version.
// 0, or -1 with a sentence in out_error (static memory); *out_absent: it is just not installed.
int net_open(struct net *net, const char *library, int api, const char **out_error,
             int *out_absent);
void net_close(struct net *net); // dlclose
const void *net_find_nccl(void **out_lib, const char **out_error, int *out_absent);

// v9 and older have no traffic class; v10 takes it at connect, v11 and later at init.
int net_init(struct net *net, uint64_t id, int traffic_class, void **out_ctx);
int net_devices(struct net *net, int *out_count);
// Fields that the version lacks: max_p2p_bytes INT_MAX, vdevs 1, rail and plane -1, else 0.
int net_properties(struct net *net, int dev, struct net_props *out_props);
int net_listen(struct net *net, void *ctx, int dev, void *handle, void **out_comm);
int net_connect(struct net *net, void *ctx, int dev, int traffic_class, void *handle,
                void **out_comm);
int net_accept(struct net *net, void *listener, void **out_comm);
int net_reg(struct net *net, void *comm, void *data, size_t bytes, void **out_mh); // host memory
// As GPU memory, by a dma-buf.
int net_reg_dmabuf(struct net *net, void *comm, void *data, size_t bytes, uint64_t offset, int fd,
                   void **out_mh);
int net_dereg(struct net *net, void *comm, void *mh);
int net_isend(struct net *net, void *comm, void *data, size_t bytes, int tag, void *mh,
              void **out_request);
int net_irecv(struct net *net, void *comm, int n, void **data, const size_t *bytes, const int *tags,
              void **mhs, void **request);
int net_iflush(struct net *net, void *comm, int n, void **data, const int *bytes, void **mhs,
               void **out_request);
// out_bytes: n sizes, or NULL.
int net_test(struct net *net, void *request, int *out_done, int n, int *out_bytes);
int net_close_send(struct net *net, void *comm);
int net_close_recv(struct net *net, void *comm);
int net_close_listen(struct net *net, void *comm);
int net_make_vdevice(struct net *net, int n, const int *devs, int *out_dev); // v9 and later
int net_finalize(struct net *net, void *ctx); // success without a call before v11
const char *net_missing(struct net *net);
const struct net_calls *net_calls_of(int api); // adapt.c

// What the plugin logged, on any thread: the newest 64 lines are kept, and WARN lines are counted.
#define NET_LINE_BYTES 512
unsigned net_warnings(void);
unsigned net_lines(void);
// A kept line, 0 for the newest. 0 when there is none.
int net_line(unsigned age, char out_line[NET_LINE_BYTES]);
// 1 when some kept line holds the text.
int net_logged(const char *text);
void net_say(int level, unsigned long subsystems, const char *file, int line, const char *format,
             ...) __attribute__((format(printf, 5, 6)));

// Memory whose last byte is the last before an inaccessible page; poisoned. Never fails (exits).
void *guard_alloc(size_t bytes);
void guard_free(void *p, size_t bytes);
// A reusable place for n bytes: one for each slot. Contents are poison.
enum guard_slot {
    GUARD_OUT,
    GUARD_STRUCT,
    GUARD_DATA,
    GUARD_BYTES,
    GUARD_TAGS,
    GUARD_MHS,
    GUARD_PHANDLES,
    GUARD_REQUEST,
    GUARD_DONE,
    GUARD_SLOTS
};
void *guard_place(enum guard_slot slot, size_t bytes);
void *guard_copy(enum guard_slot slot, const void *from, size_t bytes);
// 1 when all bytes are poison.
int guard_untouched(const void *p, size_t bytes);

#endif
