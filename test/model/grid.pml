// SPDX-License-Identifier: Apache-2.0
/* Two nodes of two ranks: all eight steps of the data path at once, with the direct algorithm
 * between the nodes or (TWOSHOT) with two hops: the peer's half goes there and is summed, the sum
 * of the own half comes back. A local rank owns one of the two chunks on both nodes, another one in
 * every epoch.
 *
 * partial    writer: its rank (pull), or the sender of a push slot; reader: the chunk's owner.
 * ready      writer: the partial's writer; reader: the owner.
 * staging    writer: the owner; readers: its NIC, and the owner for its own share.
 * recv       writer: the peer's NIC; reader: the owner.
 * arrival    writer: the peer's NIC, after recv on the same QP; reader: the owner.
 * result     (two hops) writer: the owner; reader: its NIC. back: writer: the peer's NIC; reader: the
 *            owner. One copy each.
 * out        writer: the chunk's owner; reader: its rank, which copies it to C before it returns.
 * published  writer: the owner, after out; reader: the rank.
 */
#define G 2
#ifndef EPOCHS
#define EPOCHS 4
#endif
#ifndef STAGING
#define STAGING 2
#endif
#ifndef RECV
#define RECV 2
#endif
#define R (2 * G)
#define OWNER(c) (node * G + (c + e) % G)

chan ring[R] = [4] of { byte, bit }; /* epoch, second hop */
byte partial[R * G], ready[R * G * G], out[R * G], published[R * G];
byte staging[R * STAGING], recv[R * RECV], arrival[R * 2];
byte result[R], back[R], returned[R * 2];

/* Rank r's NIC; its peer is the rank of the other node with the same local index. */
proctype nic(byte r; byte peer)
{
    byte e;
end:
    do
    :: atomic { ring[r]?e, 0 ->
            assert(staging[r * STAGING + e % STAGING] == e);
            recv[peer * RECV + e % RECV] = e }
        arrival[peer * 2 + e % 2] = e
    :: atomic { ring[r]?e, 1 ->
            assert(result[r] == e);
            back[peer] = e }
        returned[peer * 2 + e % 2] = e
    od
}

#ifdef TWOSHOT
#define WHOLE (returned[r * 2 + e % 2] >= e)
#define DATA back[r]
#else
#define WHOLE 1
#define DATA e
#endif
#define STORE(k) \
    :: atomic { !(done & (1 << k)) -> partial[r * G + k] = e; \
        ready[(OWNER(k) * G + k) * G + mine] = e; done = done | (1 << k) }

proctype rank(byte r; byte node; byte mine)
{
    byte e = 1, c, p, done, summed, own;
    bit sent, come;
    do
    :: e > EPOCHS -> break
    :: e <= EPOCHS ->
        atomic {
            done = 0; summed = 0; p = 0; sent = 0; come = 0;
            own = (mine + G * EPOCHS - e) % G
        }
        do
        STORE(0)
        STORE(1)
        :: atomic { summed < G && ready[(r * G + own) * G + summed] >= e ->
            assert(partial[(node * G + summed) * G + own] == e); summed++ }
        :: atomic { summed == G && !sent ->
            staging[r * STAGING + e % STAGING] = e; ring[r]!e, 0; sent = 1 }
        :: atomic { sent && !come && arrival[r * 2 + e % 2] >= e ->
            assert(recv[r * RECV + e % RECV] == e);
            assert(staging[r * STAGING + e % STAGING] == e);
#ifdef TWOSHOT
            result[r] = e; ring[r]!e, 1;
#endif
            come = 1 }
        :: atomic { come && p < G && WHOLE ->
            assert(DATA == e);
            out[(node * G + p) * G + own] = e; published[(node * G + p) * G + own] = e; p++ }
        :: atomic { p == G && published[r * G] >= e && published[r * G + 1] >= e ->
            c = 0;
            do
            :: c < G -> assert(out[r * G + c] == e); c++
            :: c == G -> break
            od;
            c = 0; break }
        od;
        e++
    od
}

init
{
    byte i;
    atomic {
        for (i : 0 .. R - 1) {
            run rank(i, i / G, i % G);
            run nic(i, (i + G) % R)
        }
    }
}
