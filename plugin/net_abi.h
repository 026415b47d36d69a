// SPDX-License-Identifier: Apache-2.0
// NCCL's network plugin API, versions 6 to 12: the layouts that NCCL and a plugin share, restated.
//
// Every figure was read from NCCL 2.30.7 by compiling its headers: versions 6 to 12 from
// src/include/plugin/net/net_v6.h to net_v12.h, the device handle and the offload types from
// src/include/nccl_device/net_device.h, the constants from src/include/plugin/nccl_net.h, the
// logger and the profiler callback from src/include/nccl_common.h, the results from src/nccl.h.in.
// NCCL 2.28.9 ends at version 11 and has the same layouts for 6 to 11. Layouts are those of
// 64-bit Linux.
//
// A call returns enum gemmar_nccl_result as an int. "Not yet" is success with a NULL object or
// request. NCCL owns every struct behind a pointer argument and every handle buffer; a plugin
// owns the comms, memory handles and requests that it returns, and the strings in the properties.
#ifndef GEMMAR_NET_ABI_H
#define GEMMAR_NET_ABI_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

/* nccl.h: ncclResult_t. The version of it that NCCL hands to plugin writers ends at 6. */
enum gemmar_nccl_result {
    GEMMAR_NCCL_SUCCESS = 0,
    GEMMAR_NCCL_UNHANDLED_CUDA_ERROR = 1,
    GEMMAR_NCCL_SYSTEM_ERROR = 2,
    GEMMAR_NCCL_INTERNAL_ERROR = 3,
    GEMMAR_NCCL_INVALID_ARGUMENT = 4,
    GEMMAR_NCCL_INVALID_USAGE = 5,
    GEMMAR_NCCL_REMOTE_ERROR = 6,
    GEMMAR_NCCL_IN_PROGRESS = 7,
};

/* nccl_net.h. */
#define GEMMAR_NET_HANDLE_SIZE        128 /* bytes of the buffer that listen fills */
#define GEMMAR_NET_MAX_REQUESTS       32  /* requests of a comm, a grouped receive is one */
#define GEMMAR_NET_MAX_SIZE           INT64_C(0x10000000000) /* cap of the max_*_bytes properties */
#define GEMMAR_NET_VDEVICE_DEVICES_V9 4 /* net_v11.h: devices of a virtual NIC, v9 to v11 */
#define GEMMAR_NET_VDEVICE_DEVICES    8 /* net_v12.h */

/* Where memory lives: the type of a registration, and the bits of ptr_support. */
enum gemmar_net_ptr {
    GEMMAR_NET_PTR_HOST = 0x1,
    GEMMAR_NET_PTR_CUDA = 0x2,
    GEMMAR_NET_PTR_DMABUF = 0x4, /* only a bit of ptr_support: regMrDmaBuf may be called */
};

/* What *request may hold on entry of irecv, from v9 on; before v9 it is whatever NCCL left there.
 * The plugin overwrites it in every version. */
#define GEMMAR_NET_OPTIONAL_RECV ((void *)0x1) /* sizes of the receive will not be asked for */

/* "Not given" in the fields of NCCL that may lack a value. */
#define GEMMAR_NET_TRAFFIC_CLASS_UNDEFINED (-1)
#define GEMMAR_NET_ID_UNDEFINED            (-1)
#define GEMMAR_NET_ATTR_UNDEFINED          (-1)

/* nccl_common.h: ncclDebugLogLevel and the bits of ncclDebugLogSubSys that a network uses. */
enum gemmar_nccl_log_level {
    GEMMAR_NCCL_LOG_NONE = 0,
    GEMMAR_NCCL_LOG_VERSION = 1,
    GEMMAR_NCCL_LOG_WARN = 2,
    GEMMAR_NCCL_LOG_INFO = 3,
    GEMMAR_NCCL_LOG_ABORT = 4,
    GEMMAR_NCCL_LOG_TRACE = 5,
};

enum gemmar_nccl_log_subsystem {
    GEMMAR_NCCL_INIT = 0x1,
    GEMMAR_NCCL_NET = 0x10,
    GEMMAR_NCCL_GRAPH = 0x20,
    GEMMAR_NCCL_ENV = 0x80,
    GEMMAR_NCCL_REG = 0x2000,
    GEMMAR_NCCL_PROFILE = 0x4000,
    GEMMAR_NCCL_ALL = -1,
};

/* NCCL's logger. Any thread. It filters by level and subsystem and adds the line's head; for a
 * warning it also keeps the text as the last error. A format without a newline. */
typedef void (*gemmar_nccl_logger)(int level, unsigned long subsystems, const char *file, int line,
                                   const char *format, ...) __attribute__((format(printf, 5, 6)));

/* What happens to a profiler event (nccl_common.h). */
enum gemmar_nccl_profiler_action {
    GEMMAR_NCCL_PROFILER_START = 0,
    GEMMAR_NCCL_PROFILER_STOP = 1,
    GEMMAR_NCCL_PROFILER_UPDATE = 2,
    GEMMAR_NCCL_PROFILER_UPDATE_AND_STOP = 3,
};

/* NCCL's way to its profiler plugin. event: out on start, in afterwards. phandle: what came with
 * isend or irecv. plugin_id says which struct descriptor points to (see net_profiler.h). */
typedef int (*gemmar_nccl_profiler)(void **event, int action, void *phandle, int64_t plugin_id,
                                    void *descriptor);

/* Settings of a communicator: argument of connect in v10, of init from v11 on. */
struct gemmar_net_config {
    int traffic_class; /* GEMMAR_NET_TRAFFIC_CLASS_UNDEFINED: the plugin's own choice */
};
static_assert(sizeof(struct gemmar_net_config) == 4, "net_v10.h, net_v11.h, net_v12.h");

/* The devices that a virtual NIC joins; a device on its own has itself. v9, v10 and v11 agree. */
struct gemmar_net_vprops_v9 {
    int ndevs;
    int devs[GEMMAR_NET_VDEVICE_DEVICES_V9];
};
static_assert(sizeof(struct gemmar_net_vprops_v9) == 20, "net_v9.h, net_v10.h, net_v11.h");

struct gemmar_net_vprops_v12 {
    int ndevs;
    int devs[GEMMAR_NET_VDEVICE_DEVICES];
};
static_assert(sizeof(struct gemmar_net_vprops_v12) == 36, "net_v12.h");

/* net_device.h: ncclNetDeviceType. A plugin without device code says host and version 0. */
enum gemmar_net_device_type {
    GEMMAR_NET_DEVICE_HOST = 0,
    GEMMAR_NET_DEVICE_UNPACK = 1,
};
#define GEMMAR_NET_DEVICE_NO_VERSION 0

/* Device offload of a connection, v7 to v12. connect and accept get the address of a pointer to
 * it (that address may be NULL); a plugin without offload sets the pointer to NULL. */
struct gemmar_net_device_handle {
    int device_type; /* enum gemmar_net_device_type */
    int device_version;
    void *handle;
    size_t size; /* bytes behind handle */
    int needs_proxy_progress;
};
static_assert(sizeof(struct gemmar_net_device_handle) == 32, "net_device.h");
static_assert(offsetof(struct gemmar_net_device_handle, handle) == 8, "net_device.h");
static_assert(offsetof(struct gemmar_net_device_handle, needs_proxy_progress) == 24,
              "net_device.h");

/* What NCCL expects of the connections that it makes next, v11 and v12; -1: unknown. */
struct gemmar_net_comm_attr {
    int32_t max_concurrent_peers;
    int32_t min_concurrent_peers;
    int32_t max_flows_per_peer;
    int32_t min_flows_per_peer;
};

struct gemmar_net_attr {
    struct gemmar_net_comm_attr send;
    struct gemmar_net_comm_attr recv;
    uint32_t operation; /* bits by collective */
    uint32_t algorithm; /* bits by algorithm */
    uint32_t protocol;  /* bits by protocol */
};
static_assert(sizeof(struct gemmar_net_attr) == 44, "net_v11.h, net_v12.h");
static_assert(offsetof(struct gemmar_net_attr, operation) == 32, "net_v11.h, net_v12.h");

/* ---- Properties of a device ---- */

#define GEMMAR_NET_PROPS_IDENTITY                                                                  \
    const char *name;     /* for logs */                                                           \
    const char *pci_path; /* directory below /sys, links resolved; NULL: unknown */                \
    uint64_t guid;        /* same for all functions and ports of one chip */                       \
    int ptr_support;      /* enum gemmar_net_ptr, or-ed */

#define GEMMAR_NET_PROPS_PORT                                                                      \
    int speed;     /* Mbit/s */                                                                    \
    int port;      /* as verbs counts, from 1 */                                                   \
    float latency; /* microseconds; 0: unknown */                                                  \
    int max_comms; /* connections that the device can hold */                                      \
    int max_recvs; /* receives that one irecv can group */

#define GEMMAR_NET_PROPS_OFFLOAD                                                                   \
    int device_type; /* enum gemmar_net_device_type */                                             \
    int device_version;

/* From v9 on; the type of vprops differs. */
#define GEMMAR_NET_PROPS_SINCE_V9(vprops_type)                                                     \
    GEMMAR_NET_PROPS_IDENTITY                                                                      \
    int reg_is_global; /* a registration serves every comm of the device */                        \
    int force_flush;   /* NCCL calls iflush also where the GPU would not need it */                \
    GEMMAR_NET_PROPS_PORT                                                                          \
    GEMMAR_NET_PROPS_OFFLOAD                                                                       \
    vprops_type vprops;                                                                            \
    size_t max_p2p_bytes;  /* largest transfer, at most GEMMAR_NET_MAX_SIZE */                     \
    size_t max_coll_bytes; /* same, for collectives in the network */

struct gemmar_net_props_v6 {
    GEMMAR_NET_PROPS_IDENTITY
    GEMMAR_NET_PROPS_PORT
};

struct gemmar_net_props_v7 {
    GEMMAR_NET_PROPS_IDENTITY
    GEMMAR_NET_PROPS_PORT
    GEMMAR_NET_PROPS_OFFLOAD
};

struct gemmar_net_props_v8 {
    GEMMAR_NET_PROPS_IDENTITY
    int reg_is_global;
    GEMMAR_NET_PROPS_PORT
    GEMMAR_NET_PROPS_OFFLOAD
};

/* v10 has the same. */
struct gemmar_net_props_v9 {
    GEMMAR_NET_PROPS_SINCE_V9(struct gemmar_net_vprops_v9)
};

struct gemmar_net_props_v11 {
    GEMMAR_NET_PROPS_SINCE_V9(struct gemmar_net_vprops_v9)
    int max_multi_request_size; /* requests that one call can carry; 1: no such calls */
};

struct gemmar_net_props_v12 {
    GEMMAR_NET_PROPS_SINCE_V9(struct gemmar_net_vprops_v12)
    int max_multi_request_size;
    int16_t rail_id;  /* GEMMAR_NET_ID_UNDEFINED: unknown */
    int16_t plane_id; /* same */
};

#define GEMMAR_NET_SIZE_IS(type, bytes, source)                                                    \
    static_assert(sizeof(struct type) == (bytes), source)
#define GEMMAR_NET_OFFSET_IS(type, member, bytes, source)                                          \
    static_assert(offsetof(struct type, member) == (bytes), source)

GEMMAR_NET_SIZE_IS(gemmar_net_props_v6, 48, "net_v6.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v6, speed, 28, "net_v6.h");
GEMMAR_NET_SIZE_IS(gemmar_net_props_v7, 56, "net_v7.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v7, device_type, 48, "net_v7.h");
GEMMAR_NET_SIZE_IS(gemmar_net_props_v8, 64, "net_v8.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v8, speed, 32, "net_v8.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v8, device_type, 52, "net_v8.h");
GEMMAR_NET_SIZE_IS(gemmar_net_props_v9, 104, "net_v9.h, net_v10.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v9, vprops, 64, "net_v9.h, net_v10.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v9, max_p2p_bytes, 88, "net_v9.h, net_v10.h");
GEMMAR_NET_SIZE_IS(gemmar_net_props_v11, 112, "net_v11.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v11, vprops, 64, "net_v11.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v11, max_p2p_bytes, 88, "net_v11.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v11, max_multi_request_size, 104, "net_v11.h");
GEMMAR_NET_SIZE_IS(gemmar_net_props_v12, 128, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v12, pci_path, 8, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v12, guid, 16, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v12, ptr_support, 24, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v12, reg_is_global, 28, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v12, force_flush, 32, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v12, speed, 36, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v12, port, 40, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v12, latency, 44, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v12, max_comms, 48, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v12, max_recvs, 52, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v12, device_type, 56, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v12, device_version, 60, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v12, vprops, 64, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v12, max_p2p_bytes, 104, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v12, max_coll_bytes, 112, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v12, max_multi_request_size, 120, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v12, rail_id, 124, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_props_v12, plane_id, 126, "net_v12.h");

/* ---- Function tables ---- */

/* The first members of every version; init and the properties differ. */
#define GEMMAR_NET_CALLS_DEVICE(init_arguments, props_version)                                     \
    const char *name;                                                                              \
    int(*init) init_arguments;                                                                     \
    int (*devices)(int *out_count);                                                                \
    int (*get_properties)(int dev, struct gemmar_net_props_##props_version *out_props);

/* size_type: int in v6 and v7, size_t from v8 on. */
#define GEMMAR_NET_CALLS_MEMORY(size_type)                                                         \
    int (*reg_mr)(void *comm, void *data, size_type size, int type, void **out_mhandle);           \
    int (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,   \
                         void **out_mhandle);                                                      \
    int (*dereg_mr)(void *comm, void *mhandle);

/* size_type: int to v8, size_t from v9 on. request: in for irecv, see GEMMAR_NET_OPTIONAL_RECV. */
#define GEMMAR_NET_CALLS_TRANSFER(size_type)                                                       \
    int (*isend)(void *send_comm, void *data, size_type size, int tag, void *mhandle,              \
                 void **out_request);                                                              \
    int (*irecv)(void *recv_comm, int n, void **data, size_type *sizes, int *tags,                 \
                 void **mhandles, void **request);

/* From v10 on with the profiler's handles; each may be NULL, phandles too. */
#define GEMMAR_NET_CALLS_PROFILED_TRANSFER                                                         \
    int (*isend)(void *send_comm, void *data, size_t size, int tag, void *mhandle, void *phandle,  \
                 void **out_request);                                                              \
    int (*irecv)(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,   \
                 void **phandles, void **request);

#define GEMMAR_NET_CALLS_COMPLETION                                                                \
    int (*iflush)(void *recv_comm, int n, void **data, int *sizes, void **mhandles,                \
                  void **out_request);                                                             \
    int (*test)(void *request, int *out_done, int *out_sizes); /* out_sizes may be NULL */         \
    int (*close_send)(void *send_comm);                                                            \
    int (*close_recv)(void *recv_comm);                                                            \
    int (*close_listen)(void *listen_comm);

/* From v7 on; NULL in a plugin without device offload. */
#define GEMMAR_NET_CALLS_OFFLOAD                                                                   \
    int (*get_device_mr)(void *comm, void *mhandle, void **out_device_mhandle);                    \
    int (*irecv_consumed)(void *recv_comm, int n, void *request);

/* v7 to v9. */
#define GEMMAR_NET_CALLS_CONNECT                                                                   \
    int (*listen)(int dev, void *handle, void **out_listen_comm);                                  \
    int (*connect)(int dev, void *handle, void **out_send_comm,                                    \
                   struct gemmar_net_device_handle **out_device_comm);                             \
    int (*accept)(void *listen_comm, void **out_recv_comm,                                         \
                  struct gemmar_net_device_handle **out_device_comm);

/* v11 and v12 differ in the properties and in the devices of a virtual NIC. */
#define GEMMAR_NET_CALLS_SINCE_V11(props_version, vprops_version)                                  \
    GEMMAR_NET_CALLS_DEVICE((void **out_ctx, uint64_t comm_id,                                     \
                             const struct gemmar_net_config *config, gemmar_nccl_logger logger,    \
                             gemmar_nccl_profiler profiler),                                       \
                            props_version)                                                         \
    int (*listen)(void *ctx, int dev, void *handle, void **out_listen_comm);                       \
    int (*connect)(void *ctx, int dev, void *handle, void **out_send_comm,                         \
                   struct gemmar_net_device_handle **out_device_comm);                             \
    int (*accept)(void *listen_comm, void **out_recv_comm,                                         \
                  struct gemmar_net_device_handle **out_device_comm);                              \
    GEMMAR_NET_CALLS_MEMORY(size_t)                                                                \
    GEMMAR_NET_CALLS_PROFILED_TRANSFER                                                             \
    GEMMAR_NET_CALLS_COMPLETION                                                                    \
    GEMMAR_NET_CALLS_OFFLOAD                                                                       \
    int (*make_vdevice)(int *out_dev, const struct gemmar_net_vprops_##vprops_version *members);   \
    int (*finalize)(void *ctx);                                                                    \
    int (*set_net_attr)(void *ctx, struct gemmar_net_attr *attr); /* NULL: not called */

struct gemmar_net_table_v6 {
    GEMMAR_NET_CALLS_DEVICE((gemmar_nccl_logger logger), v6)
    int (*listen)(int dev, void *handle, void **out_listen_comm);
    int (*connect)(int dev, void *handle, void **out_send_comm);
    int (*accept)(void *listen_comm, void **out_recv_comm);
    GEMMAR_NET_CALLS_MEMORY(int)
    GEMMAR_NET_CALLS_TRANSFER(int)
    GEMMAR_NET_CALLS_COMPLETION
};

struct gemmar_net_table_v7 {
    GEMMAR_NET_CALLS_DEVICE((gemmar_nccl_logger logger), v7)
    GEMMAR_NET_CALLS_CONNECT
    GEMMAR_NET_CALLS_MEMORY(int)
    GEMMAR_NET_CALLS_TRANSFER(int)
    GEMMAR_NET_CALLS_COMPLETION
    GEMMAR_NET_CALLS_OFFLOAD
};

struct gemmar_net_table_v8 {
    GEMMAR_NET_CALLS_DEVICE((gemmar_nccl_logger logger), v8)
    GEMMAR_NET_CALLS_CONNECT
    GEMMAR_NET_CALLS_MEMORY(size_t)
    GEMMAR_NET_CALLS_TRANSFER(int)
    GEMMAR_NET_CALLS_COMPLETION
    GEMMAR_NET_CALLS_OFFLOAD
};

struct gemmar_net_table_v9 {
    GEMMAR_NET_CALLS_DEVICE((gemmar_nccl_logger logger), v9)
    GEMMAR_NET_CALLS_CONNECT
    GEMMAR_NET_CALLS_MEMORY(size_t)
    GEMMAR_NET_CALLS_TRANSFER(size_t)
    GEMMAR_NET_CALLS_COMPLETION
    GEMMAR_NET_CALLS_OFFLOAD
    int (*make_vdevice)(int *out_dev, const struct gemmar_net_vprops_v9 *members);
};

struct gemmar_net_table_v10 {
    GEMMAR_NET_CALLS_DEVICE((gemmar_nccl_logger logger, gemmar_nccl_profiler profiler), v9)
    int (*listen)(int dev, void *handle, void **out_listen_comm);
    int (*connect)(int dev, const struct gemmar_net_config *config, void *handle,
                   void **out_send_comm, struct gemmar_net_device_handle **out_device_comm);
    int (*accept)(void *listen_comm, void **out_recv_comm,
                  struct gemmar_net_device_handle **out_device_comm);
    GEMMAR_NET_CALLS_MEMORY(size_t)
    GEMMAR_NET_CALLS_PROFILED_TRANSFER
    GEMMAR_NET_CALLS_COMPLETION
    GEMMAR_NET_CALLS_OFFLOAD
    int (*make_vdevice)(int *out_dev, const struct gemmar_net_vprops_v9 *members);
};

struct gemmar_net_table_v11 {
    GEMMAR_NET_CALLS_SINCE_V11(v11, v9)
};

struct gemmar_net_table_v12 {
    GEMMAR_NET_CALLS_SINCE_V11(v12, v12)
};

GEMMAR_NET_SIZE_IS(gemmar_net_table_v6, 136, "net_v6.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v6, close_listen, 128, "net_v6.h");
GEMMAR_NET_SIZE_IS(gemmar_net_table_v7, 152, "net_v7.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v7, get_device_mr, 136, "net_v7.h");
GEMMAR_NET_SIZE_IS(gemmar_net_table_v8, 152, "net_v8.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v8, get_device_mr, 136, "net_v8.h");
GEMMAR_NET_SIZE_IS(gemmar_net_table_v9, 160, "net_v9.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v9, make_vdevice, 152, "net_v9.h");
GEMMAR_NET_SIZE_IS(gemmar_net_table_v10, 160, "net_v10.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v10, make_vdevice, 152, "net_v10.h");
GEMMAR_NET_SIZE_IS(gemmar_net_table_v11, 176, "net_v11.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v11, finalize, 160, "net_v11.h");
GEMMAR_NET_SIZE_IS(gemmar_net_table_v12, 176, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v12, init, 8, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v12, devices, 16, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v12, get_properties, 24, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v12, listen, 32, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v12, connect, 40, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v12, accept, 48, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v12, reg_mr, 56, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v12, isend, 80, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v12, iflush, 96, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v12, test, 104, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v12, close_send, 112, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v12, get_device_mr, 136, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v12, make_vdevice, 152, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v12, finalize, 160, "net_v12.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_table_v12, set_net_attr, 168, "net_v12.h");

/* What NCCL looks up in the library, newest first. It never writes to a table. */
extern const struct gemmar_net_table_v6 ncclNetPlugin_v6;
extern const struct gemmar_net_table_v7 ncclNetPlugin_v7;
extern const struct gemmar_net_table_v8 ncclNetPlugin_v8;
extern const struct gemmar_net_table_v9 ncclNetPlugin_v9;
extern const struct gemmar_net_table_v10 ncclNetPlugin_v10;
extern const struct gemmar_net_table_v11 ncclNetPlugin_v11;
extern const struct gemmar_net_table_v12 ncclNetPlugin_v12;

#endif
