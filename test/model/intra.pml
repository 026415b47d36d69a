// SPDX-License-Identifier: Apache-2.0
/* One node of G ranks and G chunks; the owner of a chunk moves with the epoch.
 *
 * partial    writer: its rank (pull), or the sender of a push slot; reader: the chunk's owner.
 * ready      writer: the partial's writer; reader: the owner.
 * out        writer: the chunk's owner; reader: its rank, which copies it to C before it returns.
 * published  writer: the owner, after out; reader: the rank.
 * aborted    writer: a rank that leaves in the middle; reader: every wait (not with DEAF).
 */
#ifndef G
#define G 2
#endif
#ifndef EPOCHS
#define EPOCHS 4
#endif
#ifndef CHUNKLESS
#define CHUNKLESS 99
#endif
byte partial[G * G], ready[G * G * G], out[G * G], published[G * G];
bit aborted;

#define OWNER(c) ((c + e) % G)
#define STORE(k) \
    :: atomic { (k < G) && !(done & (1 << k)) -> partial[r * G + k] = e; \
        ready[(OWNER(k) * G + k) * G + r] = e; done = done | (1 << k) }
#define ALL_PUBLISHED \
    (published[r * G] >= e && published[r * G + 1] >= e && published[r * G + G - 1] >= e)

proctype rank(byte r)
{
    byte e = 1, c, p, done, summed, own;
    do
    :: e > EPOCHS -> break
    :: e == CHUNKLESS -> e++
    :: e <= EPOCHS && e != CHUNKLESS ->
        done = 0; summed = 0; p = 0; own = (r + G * EPOCHS - e) % G;
        do
        STORE(0)
        STORE(1)
#if G > 2
        STORE(2)
#endif
        :: atomic { summed < G && ready[(r * G + own) * G + summed] >= e ->
            assert(partial[summed * G + own] == e); summed++ }
        :: atomic { summed == G && p < G -> out[p * G + own] = e; published[p * G + own] = e; p++ }
        :: p == G && ALL_PUBLISHED -> break
#ifdef ABORT
        :: r == 0 -> aborted = 1; goto left
#ifndef DEAF
        :: aborted -> goto left
#endif
#endif
        od;
        for (c : 0 .. G - 1) {
            assert(out[r * G + c] == e)
        }
        e++
    od;
left:
    skip
}

init
{
    byte i;
    atomic {
        for (i : 0 .. G - 1) {
            run rank(i)
        }
    }
}
