// SPDX-License-Identifier: Apache-2.0
// GPUs that are emulated on the CPU: what the kernels' instructions and the runtime's calls are
// made of. README.md says what is emulated, and what is not.
//
// A GPU thread is a fiber. One host thread at a time runs fibers, under the lock: whoever waits for
// a stream. Which fiber goes on, and when the copy engines and stores get on, is drawn from
// EMULATED_SEED.
#ifndef GEMMAR_TEST_EMULATED_GPU_H
#define GEMMAR_TEST_EMULATED_GPU_H

#include <cuda_runtime_api.h>
#include <functional>
#include <stdint.h>
#include <string.h>

/* Of a GPU thread: kernels/ptx and the language. */

uint32_t emulated_thread(void); /* of its CTA */
uint32_t emulated_cta(void);
uint32_t emulated_ctas(void); /* of the grid */

/* Something that is not emulated was reached. */
[[noreturn]] int emulated_nowhere(const char *what);

uint64_t emulated_now_ns(void);

/* Others may run. `polling`: nothing has changed for this one since it was here last. */
void emulated_yield(bool polling);
void emulated_pause(void);

/* Rendezvous of a warp, of `threads` threads of the CTA, of a cluster. The stores of those who come
 * are seen by all who leave. */
void emulated_warp_sync(void);
void emulated_bar_sync(uint32_t barrier, uint32_t threads);
void emulated_cluster_sync(void);

/* Rendezvous of a warp that orders no memory: every lane's value. */
const uint64_t *emulated_exchange(uint64_t value);

template <class T> static inline T emulated_shuffle(T x, uint32_t lane)
{
    uint64_t bits = 0;
    T out;

    static_assert(sizeof(T) <= 8, "one word a lane");
    memcpy(&bits, &x, sizeof(x));
    bits = emulated_exchange(bits)[lane % 32];
    memcpy(&out, &bits, sizeof(out));
    return out;
}

static inline uint32_t emulated_ballot(bool x)
{
    const uint64_t *all = emulated_exchange(x);
    uint32_t ballot = 0;

    for (uint32_t lane = 0; lane < 32; lane++) {
        ballot |= (uint32_t)(all[lane] != 0) << lane;
    }
    return ballot;
}

static inline float emulated_bits_float(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Shared memory of this CTA: addresses are offsets. */
#define EMULATED_SHARED_BYTES (228u * 1024u)
uint32_t emulated_shared_address(const void *p);
uint8_t *emulated_shared_base(void);
uint8_t *emulated_shared(uint32_t address);

/* This thread has written there. A fence for the copy engine: that sees what was written, and what
 * it has stored for this thread is one of the thread's own stores. */
void emulated_shared_written(uint32_t address, uint32_t bytes);
void emulated_fence_async(void);

/* Words in global memory. A store that is only relaxed is seen by others at some time, and stores
 * to different words in any order, until the thread releases what it stored; to the CTA alone,
 * until a thread of it releases. */
uint64_t emulated_load(const uint64_t *word);
void emulated_store_later(void *to, const void *from, uint32_t bytes);
void emulated_release(void);
void emulated_release_to_cta(void);

/* mbarriers; `cta` of the cluster. */
void emulated_mbarrier_init(uint32_t bar, uint32_t arrivals);
void emulated_mbarrier_arrive(uint32_t cta, uint32_t bar, uint32_t expected_bytes);
void emulated_mbarrier_wait(uint32_t bar, uint32_t phase);
uint32_t emulated_cta_of_cluster(void);

/* The copy engine. A load reads and writes some time later, and then completes its bytes on `bar`
 * of the CTAs in `mask`. A store reads, and later writes, some time before the group is waited for.
 */
void emulated_async_load(uint32_t dst, uint32_t mask, uint32_t bar, uint32_t bytes,
                         std::function<void(uint8_t *)> read);
void emulated_async_store(uint32_t src, uint32_t bytes, std::function<void(const uint8_t *)> write);
void emulated_bulk_commit(void);
void emulated_bulk_wait(uint32_t pending, bool reads_only);

/* What the runtime makes of a tensor map: a row-major matrix of 16-bit elements, in swizzled boxes
 * of 64 columns. */
struct emulated_map {
    void *base;
    uint64_t columns, rows, row_bytes;
    uint32_t box_rows;
};

/* The box at (x, y): from memory, and to memory. */
void emulated_tensor_load(const emulated_map &m, int32_t x, int32_t y, uint32_t dst,
                          uint8_t *shared);
void emulated_tensor_store(const emulated_map &m, int32_t x, int32_t y, uint32_t src,
                           const uint8_t *shared);

/* One wgmma of this thread's warpgroup: `d` is the thread's part. Operands are read and `d` is
 * written when the group is waited for. */
void emulated_wgmma(float *d, uint32_t columns, bool bf16, bool trans_b, uint32_t a, uint32_t b,
                    bool accumulate);
void emulated_wgmma_commit(void);
void emulated_wgmma_wait(uint32_t pending);

/* Of the runtime. */

struct emulated_grid;

/* Under the lock. */
struct emulated_grid *emulated_start(std::function<void()> thread, uint32_t ctas, uint32_t threads);
bool emulated_ended(struct emulated_grid *grid); /* then it is gone */
void emulated_step(void);                        /* of whatever can go on */

/* Behind what is in the stream: `work` is asked until it says that it has ended. */
void emulated_enqueue(cudaStream_t stream, std::function<bool()> work);

#endif
