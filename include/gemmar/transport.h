// SPDX-License-Identifier: Apache-2.0
// The versioned function table between libgemmar and the transport: the only door between them.
//
// libnccl-net-gemmar.so exports one object, `gemmarTransport_v1`. A user opens the library by its
// SONAME, checks `version` and `size`, acquires the transport, opens a channel per rank, exchanges
// the connect blobs by a means of its own (NCCL, or the host bootstrap) and connects every peer.
// Members are only ever appended. Functions return 0 or a negative errno; -EAGAIN means "not now".
// Unless a comment says otherwise a function may be called from any thread, one at a time per
// object.
#ifndef GEMMAR_TRANSPORT_H
#define GEMMAR_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#include <gemmar/fifo.h>

#define GEMMAR_TRANSPORT_VERSION  1u
#define GEMMAR_TRANSPORT_SONAME   "libnccl-net-gemmar.so"
#define GEMMAR_TRANSPORT_SYMBOL   "gemmarTransport_v1"
#define GEMMAR_CONNECT_BLOB_BYTES 4096u /* of one peer, all rails and queue pairs */
#define GEMMAR_ERROR_TEXT_BYTES   512u

enum gemmar_log_level {
    GEMMAR_LOG_WARN = 1,
    GEMMAR_LOG_INFO = 2,
    GEMMAR_LOG_TRACE = 3,
};

/* Receives one finished line without a line feed; called from any thread of the transport. */
typedef void (*gemmar_log_fn)(void *user, enum gemmar_log_level level, const char *text);

struct gemmar_transport; /* one user's hold on the process's transport */
struct gemmar_channel;   /* one rank's ring, proxy thread and queue pairs to all of its peers */

struct gemmar_transport_settings {
    size_t size;       /* sizeof(struct gemmar_transport_settings) */
    gemmar_log_fn log; /* NULL: standard error */
    void *log_user;
};

enum gemmar_link_layer {
    GEMMAR_LINK_INFINIBAND = 1,
    GEMMAR_LINK_ETHERNET = 2,
};

/* One usable port, after NCCL_IB_HCA; index 0 .. device_count-1 is stable while acquired. */
struct gemmar_transport_device {
    size_t size; /* set by the caller */
    char name[64];
    char pci_path[256]; /* resolved /sys path, or "" */
    uint64_t guid;      /* differs per port */
    uint32_t port;
    uint32_t link_layer; /* enum gemmar_link_layer */
    uint32_t speed_mbps;
    int32_t numa_node; /* -1: unknown */
    int32_t gid_index; /* the one that would be used, -1 on InfiniBand without a global header */
    uint32_t mtu;      /* bytes, of the port */
    uint32_t dmabuf;   /* 1: ibv_reg_dmabuf_mr works on this device */
    uint32_t reserved;
};

/* A range of host or GPU memory. */
struct gemmar_memory {
    void *address;
    uint64_t length;        /* bytes */
    int32_t dmabuf_fd;      /* exporting [address, address + length), or -1 for host memory */
    uint32_t is_gpu;        /* 1: GPU memory; without a dma-buf, peer memory is tried */
    uint64_t dmabuf_offset; /* of `address` in the dma-buf */
};

/*
 * A route is an agreed one-way path on which commands travel: from a source window of mine to a
 * sink window of the peer, with a window of stamps there. Both ends describe the same route index:
 * each one's `source` is its own sending side, `sink` and `stamp` are where the peer's commands on
 * its route to me arrive here. A route table is laid out alike on all ranks: the blob for a peer
 * names the peer's route by `peer_route`. Offsets are in bytes from `data.address` and
 * `stamps.address`, indexed by epoch parity.
 */
struct gemmar_route_settings {
    uint32_t peer;       /* index into peers; GEMMAR_ROUTE_UNUSED for a hole in the table */
    uint32_t peer_route; /* index, in the peer's table, of its route that leads back to me */
    uint64_t source_offset[2];
    uint64_t sink_offset[2];
    uint64_t stamp_offset[2]; /* the stamp of slot s lies at stamp_offset + 8 * s */
    uint64_t window_bytes;    /* of the source and of the sink; a command beyond it is refused */
    uint64_t slots;           /* 8-byte stamps in the stamp window */
};
#define GEMMAR_ROUTE_UNUSED UINT32_MAX

enum gemmar_signal_mode {
    GEMMAR_SIGNAL_STAMP = 0, /* inline RDMA write of the epoch behind the data on the same QP */
    GEMMAR_SIGNAL_IMM = 1,   /* WRITE_WITH_IMM; the receiving proxy writes the stamp */
};

struct gemmar_channel_settings {
    size_t size;
    uint32_t rank; /* of the caller, for messages */
    uint32_t peer_count;
    const uint32_t *peer_ranks; /* [peer_count], for messages */
    uint32_t route_count;
    uint32_t device_count;
    const struct gemmar_route_settings *routes; /* [route_count] */
    const uint32_t *devices;                    /* [device_count] rails */
    struct gemmar_memory data;                  /* staging and recv: may be relaxed-ordered */
    struct gemmar_memory stamps;                /* always strictly ordered */
    uint32_t queue_pairs_per_peer;              /* 0: NCCL_IB_QPS_PER_CONNECTION x rails */
    uint32_t ring_entries;                      /* 0: the default; else a power of two */
    uint32_t signal;                            /* enum gemmar_signal_mode */
    int32_t numa_node;                          /* near which the proxy prefers to run, or -1 */
    uint64_t first_epoch; /* of the first command, for the extension to 64 bits */
    uint64_t timeout_ns;  /* for connecting, draining and stuck sends; 0: GEMMAR_TIMEOUT */
    /* Set to 1 on the first error. Writer: proxy and event threads (release). Reader: the caller's
     * kernel or threads (acquire, .sys). Host memory, own cache line. */
    uint64_t *abort_word;
    /* For measurements, or NULL: all commands of the ring before this one have been posted,
     * doorbell included. Writer: proxy (release). Reader: any thread or kernel (acquire, .sys).
     * Host memory. */
    uint64_t *posted_word;
};

/* The first error of a channel; later ones are only counted. */
struct gemmar_transport_error {
    size_t size;  /* set by the caller */
    int32_t code; /* negative errno, 0: none */
    uint32_t rank;
    uint32_t peer_rank; /* UINT32_MAX: no single peer */
    uint32_t qp_number; /* 0: none */
    char stage[32];     /* noun of the data path, e.g. "rdma_write" */
    char text[GEMMAR_ERROR_TEXT_BYTES];
};

struct gemmar_channel_counters {
    size_t size; /* set by the caller */
    uint64_t commands;
    uint64_t data_bytes;  /* put on the wire by data writes */
    uint64_t stamp_bytes; /* put on the wire by stamps (8 a command; 0 in imm mode) */
    uint64_t data_writes;
    uint64_t doorbells;
    uint64_t completions;
    uint64_t imm_received;
    uint64_t send_queue_full; /* times a command waited for room in a send queue */
    uint64_t post_retries;    /* posts that failed for want of resources and were repeated */
    uint64_t sleeps;          /* of the proxy thread */
    uint64_t errors;          /* completion errors after the first included */
};

struct gemmar_transport_table {
    size_t size; /* of this table as the library was built */
    uint32_t version;
    uint32_t reserved;
    const char *build_id;

    /* Take a hold on the transport; the first one reads the knobs and finds the devices. -ENODEV
     * with a logged sentence when there is no usable device. Released by the last user. */
    int (*acquire)(const struct gemmar_transport_settings *settings,
                   struct gemmar_transport **out_transport);
    void (*release)(struct gemmar_transport *transport);
    int (*device_count)(struct gemmar_transport *transport, uint32_t *out_count);
    int (*device)(struct gemmar_transport *transport, uint32_t index,
                  struct gemmar_transport_device *out_device);

    /* Register the memory, create the queue pairs and the ring. Settings are copied; the memory and
     * the abort word must outlive the channel. Never waits for a peer. */
    int (*channel_open)(struct gemmar_transport *transport,
                        const struct gemmar_channel_settings *settings,
                        struct gemmar_channel **out_channel);
    /* What peer `peer` must be handed to reach this rank: GEMMAR_CONNECT_BLOB_BYTES bytes. */
    int (*channel_blob)(struct gemmar_channel *channel, uint32_t peer, void *out_blob);
    /* Bring the queue pairs to one peer up with its blob. -EPROTO with a logged sentence when the
     * blob is not one, or of another build, or describes other routes. */
    int (*channel_connect)(struct gemmar_channel *channel, uint32_t peer, const void *blob);
    /* Start the proxy thread; every peer is connected. All ranks start before any one pushes. */
    int (*channel_start)(struct gemmar_channel *channel);
    int (*channel_ring)(struct gemmar_channel *channel, struct gemmar_fifo_ring *out_ring);
    /* Wait until every command pushed before this call is retired, at most timeout_ns (0: the
     * channel's); `pushed` is the producers' ticket word. The first error's code once broken. */
    int (*channel_drain)(struct gemmar_channel *channel, uint64_t pushed, uint64_t timeout_ns);
    /* The first error; code 0 when there is none. Any thread, also while others use the channel. */
    void (*channel_error)(struct gemmar_channel *channel, struct gemmar_transport_error *out_error);
    void (*channel_counters)(struct gemmar_channel *channel,
                             struct gemmar_channel_counters *out_counters);
    /* Number of the queue pair to this peer that slot `slot` uses: for messages. */
    uint32_t (*channel_qp)(struct gemmar_channel *channel, uint32_t peer, uint32_t slot);
    /* Stop the proxy, in the middle of traffic too, and release everything. NULL is legal. */
    void (*channel_close)(struct gemmar_channel *channel);
};

#endif
