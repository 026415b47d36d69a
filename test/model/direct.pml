// SPDX-License-Identifier: Apache-2.0
/* The direct algorithm between N nodes of one rank each.
 *
 * staging   writer: the rank; reader: its NIC. The value is the epoch whose data it holds.
 * recv      writer: the peer's NIC; reader: the rank.
 * arrival   writer: the peer's NIC, after recv on the same QP; reader: the rank.
 * retired   writer: the NIC, after its read of staging; reader: the rank.
 *
 * A NIC reads staging at the last moment before it delivers: an earlier read is only safer.
 */
#ifndef N
#define N 2
#endif
#ifndef EPOCHS
#define EPOCHS 5
#endif
#ifndef STAGING
#define STAGING 2
#endif
#ifndef RECV
#define RECV 2
#endif
#ifndef ARRIVAL
#define ARRIVAL 2
#endif
#ifndef RINGS
#define RINGS 1
#endif
#ifndef QPS
#define QPS 1
#endif
#ifndef RETIRED
#define RETIRED 0
#endif
#ifndef CHUNKLESS
#define CHUNKLESS 99
#endif
#ifndef WRAP
#define WRAP 100
#endif
#define PAIR(a, b) ((a) * N + (b))
#define QP(a, b, q) (PAIR(a, b) * QPS + (q))
#define STAMP(a, b) arrival[PAIR(a, b) * ARRIVAL + e % ARRIVAL]

chan ring[N * RINGS] = [6] of { byte, byte };
chan send[N * N * QPS] = [4] of { byte };
byte staging[N * STAGING], recv[N * N * RECV], arrival[N * N * ARRIVAL], retired[N * N];

proctype proxy(byte s)
{
    byte e, d;
end:
    do
    :: atomic { ring[s * RINGS]?e, d -> send[QP(s, d, e % QPS)]!e }
#if RINGS > 1
    :: atomic { ring[s * RINGS + 1]?e, d -> send[QP(s, d, e % QPS)]!e }
#endif
    od
}

proctype nic(byte s; byte d; byte q)
{
    byte e;
end:
    do
    :: atomic {
            send[QP(s, d, q)]?e ->
            assert(staging[s * STAGING + e % STAGING] == e);
            retired[PAIR(s, d)] = e;
            recv[PAIR(d, s) * RECV + e % RECV] = e
        }
#ifdef IMM
        /* The immediate carries e % 2 only: the receiving proxy finds e from its last stamp. */
        atomic {
            byte found = STAMP(d, s) + 2;
            if
            :: STAMP(d, s) == 0 && e % 2 == 1 -> found = 1
            :: else
            fi;
            assert(found == e);
            STAMP(d, s) = found
        }
#else
        STAMP(d, s) = e % WRAP
#endif
    od
}

#define READ(k) \
    :: atomic { (k < N) && !(got & (1 << k)) && STAMP(r, k) >= e % WRAP -> \
        assert(recv[PAIR(r, k) * RECV + e % RECV] == e); got = got | (1 << k) }

#define FREE(k) (k >= N || k == r || e <= STAGING || retired[PAIR(r, k)] >= e - STAGING)

proctype rank(byte r)
{
    byte e = 1, p, got;
    do
    :: e > EPOCHS -> break
    :: e == CHUNKLESS -> e++
    :: e <= EPOCHS && e != CHUNKLESS ->
        got = 1 << r;
        atomic {
#if RETIRED
            FREE(0) && FREE(1) && FREE(2);
#endif
            staging[r * STAGING + e % STAGING] = e;
            p = 0;
            do
            :: p < N && p != r -> ring[r * RINGS + e % RINGS]!e, p; p++
            :: p == r -> p++
            :: p >= N && p != r -> break
            od
        }
        do
        READ(0)
        READ(1)
#if N > 2
        READ(2)
#endif
        :: got == (1 << N) - 1 -> break
        od;
        e++
    od
}

init
{
    byte i, j, q;
    atomic {
        for (i : 0 .. N - 1) {
            run proxy(i);
            run rank(i);
            for (j : 0 .. N - 1) {
                for (q : 0 .. QPS - 1) {
                    if
                    :: i != j -> run nic(i, j, q)
                    :: else
                    fi
                }
            }
        }
    }
}
