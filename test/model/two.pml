// SPDX-License-Identifier: Apache-2.0
/* The two-shot algorithm between N nodes of one rank each; every buffer but arrival is single.
 * Sub-slice n belongs to node n: first hop to the owner, second hop the result to all.
 *
 * staging[hop]  writer: the rank; reader: its NIC. The value is the epoch whose data it holds.
 * recv[hop]     writer: the peer's NIC; reader: the rank.
 * arrival[hop]  writer: the peer's NIC, after recv on the same QP; reader: the rank.
 */
#ifndef N
#define N 2
#endif
#ifndef EPOCHS
#define EPOCHS 4
#endif
#ifndef QPS
#define QPS 1
#endif
#ifndef CHUNKLESS
#define CHUNKLESS 99
#endif
#define AT(h, a, b) (((h) * N + (a)) * N + (b))
#define STAMP(h, a, b) arrival[AT(h, a, b) * 2 + e % 2]

chan send[2 * N * N * QPS] = [3] of { byte };
byte staging[2 * N * N], recv[2 * N * N], arrival[4 * N * N];

proctype nic(byte h; byte s; byte d; byte q)
{
    byte e;
end:
    do
    :: atomic {
            send[AT(h, s, d) * QPS + q]?e ->
            assert(staging[AT(h, s, d)] == e);
            recv[AT(h, d, s)] = e
        }
        STAMP(h, d, s) = e
    od
}

#define SEND(h) \
    p = 0; \
    do \
    :: p < N && p != r -> \
        staging[AT(h, r, p)] = e; send[AT(h, r, p) * QPS + e % QPS]!e; p++ \
    :: p == r -> p++ \
    :: p >= N && p != r -> break \
    od

#define READ(h, k) \
    :: atomic { (k < N) && !(got & (1 << k)) && STAMP(h, r, k) >= e -> \
        assert(recv[AT(h, r, k)] == e); got = got | (1 << k) }

proctype rank(byte r)
{
    byte e = 1, p, got;
    do
    :: e > EPOCHS -> break
    :: e == CHUNKLESS -> e++
    :: e <= EPOCHS && e != CHUNKLESS ->
        got = 1 << r;
        atomic { SEND(0) }
        do
        READ(0, 0)
        READ(0, 1)
#if N > 2
        READ(0, 2)
#endif
        :: got == (1 << N) - 1 -> break
        od;
        got = 1 << r;
        atomic { SEND(1) }
        do
        READ(1, 0)
        READ(1, 1)
#if N > 2
        READ(1, 2)
#endif
        :: got == (1 << N) - 1 -> break
        od;
        e++
    od
}

init
{
    byte h, i, j, q;
    atomic {
        for (i : 0 .. N - 1) {
            run rank(i);
            for (j : 0 .. N - 1) {
                for (q : 0 .. QPS - 1) {
                    if
                    :: i != j -> run nic(0, i, j, q); run nic(1, i, j, q)
                    :: else
                    fi
                }
            }
        }
    }
}
