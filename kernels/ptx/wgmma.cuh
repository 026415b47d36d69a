// SPDX-License-Identifier: Apache-2.0
// Warpgroup matrix multiply (PTX ISA, "wgmma.mma_async"): D[64,N] += A[64,16] * B[16,N], both
// operands in shared memory with 128-byte swizzle, fp32 accumulators.
//
// Thread t of the warpgroup holds, for the 8-column group j of the tile,
//   d[4j + 0, 1]: row 16 * (t / 32) + (t % 32) / 4,      columns 8j + 2 * (t % 4) + 0, 1
//   d[4j + 2, 3]: the same columns eight rows below.
#ifndef GEMMAR_PTX_WGMMA_CUH
#define GEMMAR_PTX_WGMMA_CUH

#include <stdint.h>

static __device__ __forceinline__ void gemmar_wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void gemmar_wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int PENDING> static __device__ __forceinline__ void gemmar_wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/*
 * Matrix descriptor of a K-major operand: rows of 64 16-bit elements (128 bytes, swizzled), groups
 * of eight rows 1024 bytes apart. `address` is a shared-memory address, aligned to 1024 bytes plus
 * 32 * the index of the k step. (PTX ISA, "Matrix Descriptor Format".) Low half: the start in units
 * of 16 bytes is its lowest field, so that operands `bytes` further have it bytes / 16 higher.
 */
static __device__ __forceinline__ uint32_t gemmar_wgmma_descriptor(uint32_t address)
{
    return (address & 0x3ffffu) >> 4 | 1u << 16;
}

/*
 * Descriptor of an N-major operand: boxes of 64 columns (128 bytes, swizzled) by the k rows, `box`
 * bytes apart, eight k rows every 1024 bytes. A k step of 16 is 2048 bytes further. Low half.
 */
static __device__ __forceinline__ uint32_t gemmar_wgmma_descriptor_n(uint32_t address, uint32_t box)
{
    return (address & 0x3ffffu) >> 4 | (box >> 4) << 16;
}

/* The high half of all of them: 1024 bytes between groups of eight rows, 128-byte swizzle. */
static __device__ __forceinline__ uint64_t gemmar_wgmma_whole(uint32_t descriptor)
{
    return UINT64_C(1) << 62 | (uint64_t)(1024 >> 4) << 32 | descriptor;
}

/* Ten operand names whose number begins with t; eight operands from d[i] on. */
#define GEMMAR_WG_TEN(t)                                                                           \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t         \
    "8, %" #t "9, "
#define GEMMAR_WG_FIRST_TEN "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
#define GEMMAR_WG_OUT8(i)                                                                          \
    "+f"(d[(i)]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]),          \
        "+f"(d[(i) + 5]), "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define GEMMAR_WG_OUT32(i)                                                                         \
    GEMMAR_WG_OUT8(i), GEMMAR_WG_OUT8((i) + 8), GEMMAR_WG_OUT8((i) + 16), GEMMAR_WG_OUT8((i) + 24)
#define GEMMAR_WG_NAMES32 GEMMAR_WG_FIRST_TEN GEMMAR_WG_TEN(1) GEMMAR_WG_TEN(2) "%30, %31"
#define GEMMAR_WG_NAMES64                                                                          \
    GEMMAR_WG_FIRST_TEN GEMMAR_WG_TEN(1) GEMMAR_WG_TEN(2) GEMMAR_WG_TEN(3) GEMMAR_WG_TEN(4)        \
        GEMMAR_WG_TEN(5) "%60, %61, %62, %63"
#define GEMMAR_WG_NAMES128                                                                         \
    GEMMAR_WG_FIRST_TEN GEMMAR_WG_TEN(1) GEMMAR_WG_TEN(2) GEMMAR_WG_TEN(3) GEMMAR_WG_TEN(4)        \
        GEMMAR_WG_TEN(5) GEMMAR_WG_TEN(6) GEMMAR_WG_TEN(7) GEMMAR_WG_TEN(8) GEMMAR_WG_TEN(9)       \
            GEMMAR_WG_TEN(10) GEMMAR_WG_TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127"

/* One instruction; a, b, p and tb are the operand numbers of the descriptors, of the accumulate
 * flag and of the "B is N-major" immediate. */
#define GEMMAR_WG_MMA(shape, type, names, a, b, p, tb, ...)                                        \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p ", 0;\n"                                  \
                 "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" names "}, %" #a  \
                 ", %" #b ", p, 1, 1, 0, %" #tb ";\n}\n"                                           \
                 : __VA_ARGS__                                                                     \
                 : "l"(desc_a), "l"(desc_b), "r"(accumulate), "n"(TRANS_B))

/* accumulate 0: D = A * B. BF16: element type bf16, else fp16. TRANS_B 1: B lies N-major. */
template <int N, bool BF16, int TRANS_B>
static __device__ __forceinline__ void gemmar_wgmma(float (&d)[N / 2], uint32_t a, uint32_t b,
                                                    uint32_t accumulate)
{
    uint64_t desc_a = gemmar_wgmma_whole(a), desc_b = gemmar_wgmma_whole(b);

    static_assert(N == 64 || N == 128 || N == 256, "instruction shapes in use");
    if constexpr (N == 256 && BF16) {
        GEMMAR_WG_MMA("m64n256k16", "bf16", GEMMAR_WG_NAMES128, 128, 129, 130, 131,
                      GEMMAR_WG_OUT32(0), GEMMAR_WG_OUT32(32), GEMMAR_WG_OUT32(64),
                      GEMMAR_WG_OUT32(96));
    } else if constexpr (N == 256) {
        GEMMAR_WG_MMA("m64n256k16", "f16", GEMMAR_WG_NAMES128, 128, 129, 130, 131,
                      GEMMAR_WG_OUT32(0), GEMMAR_WG_OUT32(32), GEMMAR_WG_OUT32(64),
                      GEMMAR_WG_OUT32(96));
    } else if constexpr (N == 128 && BF16) {
        GEMMAR_WG_MMA("m64n128k16", "bf16", GEMMAR_WG_NAMES64, 64, 65, 66, 67, GEMMAR_WG_OUT32(0),
                      GEMMAR_WG_OUT32(32));
    } else if constexpr (N == 128) {
        GEMMAR_WG_MMA("m64n128k16", "f16", GEMMAR_WG_NAMES64, 64, 65, 66, 67, GEMMAR_WG_OUT32(0),
                      GEMMAR_WG_OUT32(32));
    } else if constexpr (BF16) {
        GEMMAR_WG_MMA("m64n64k16", "bf16", GEMMAR_WG_NAMES32, 32, 33, 34, 35, GEMMAR_WG_OUT32(0));
    } else {
        GEMMAR_WG_MMA("m64n64k16", "f16", GEMMAR_WG_NAMES32, 32, 33, 34, 35, GEMMAR_WG_OUT32(0));
    }
}

/* Four 8x8 matrices of 16-bit elements to shared memory; lane l gives the address of row l % 8 of
 * matrix l / 8, register r holds its part of matrix r. */
static __device__ __forceinline__ void gemmar_stmatrix4(uint32_t address, uint32_t r0, uint32_t r1,
                                                        uint32_t r2, uint32_t r3)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(r0), "r"(r1), "r"(r2), "r"(r3)
                 : "memory");
}

template <int REGISTERS> static __device__ __forceinline__ void gemmar_registers_up(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS> static __device__ __forceinline__ void gemmar_registers_down(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

#endif
