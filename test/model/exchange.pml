// SPDX-License-Identifier: Apache-2.0
/* The exchange of two ranks of a node: kernels/exchange_sm90.cuh, kernels/courier_sm90.cuh.
 *
 * A call has one or two tiles (SAME: one), as whoever comes first draws; a tile is a word. A cluster
 * is a courier, which sends tiles and stores sums, and a consumer, which takes the other rank's.
 * Words and stamps are the epochs of their calls. Stores of a rank arrive late and in any order, but
 * that it sees its own at once and that a release comes behind all of its earlier calls.
 *
 * word       memory of `owner`: AT(owner, e, tile). 0 (NONE): the part has not come.
 * sent       part on its way to the word. Writer: courier of the other rank (relaxed).
 * back       NONE on its way to the word that held the part of this epoch. Writer: consumer
 *            (relaxed; not with KEEP).
 * told       of rank r, as the other one sees it. Writer: courier 0 at the start of its call
 *            (release; not with RELAXED). Reader: couriers before their first sum (acquire; not with
 *            SILENT), which take a later epoch as well (not with EQUAL).
 * telling    told, on its way.
 * left       ABORT: rank 0 leaves its calls at any time, rank 1 after it. Waits end, what is missing
 *            is taken for come. Calls that were waiting run as well, but tell and send nothing (with
 *            DEAF they send).
 */
#ifndef CLUSTERS0
#define CLUSTERS0 1 /* of rank 0 */
#endif
#ifndef CLUSTERS1
#define CLUSTERS1 1
#endif
#ifndef LEAD
#define LEAD 2
#endif
#ifndef EPOCHS
#define EPOCHS 5
#endif
#ifndef PIECES
#define PIECES 2
#endif
byte word[8], sent[8], back[8];
byte told[2], telling[2], epoch[2], ended[2], tiles[EPOCHS + 2];
byte staged[4], freed[4]; /* items of the call that the consumer has staged, the courier has sent */
bit broken[4];            /* the consumer found that the call is being left */
bit left[2];

#define AT(owner, e, tile) ((owner) * 4 + ((e) % PIECES) * 2 + (tile))
#define CLUSTERS           (r == 0 -> CLUSTERS0 : CLUSTERS1)
#define WORK               (tiles[e] > c -> (tiles[e] - c - 1) / CLUSTERS + 1 : 0)
/* Item i of a cluster's list. */
#define ADDS ((WORK == 1 || LEAD == 1) -> i % 2 : i / 2)
#define TILE (c + CLUSTERS * ((WORK == 1 || LEAD == 1) -> i / 2 : i % 2))

#ifdef SILENT
#define ASKS 0
#else
#define ASKS ADDS
#endif
/* What its owner sees. */
#define HAS_COME(at) (back[at] == 0 && word[at] != 0)
/* May it be sent to? */
#define FREE(at)     (word[at] == 0 && back[at] == 0 && sent[at] == 0)
#define FORGET(at)   word[at] = 0; back[at] = 0; sent[at] = 0

/* What it takes from now on may be anything, at once: its words do not matter any more. */
inline leave_calls(rank)
{
    left[rank] = 1;
    FORGET(rank * 4); FORGET(rank * 4 + 1); FORGET(rank * 4 + 2); FORGET(rank * 4 + 3)
}

inline enter()
{
    if
    :: tiles[e] == 0 -> tiles[e] = 1
#ifndef SAME
    :: tiles[e] == 0 -> tiles[e] = 2
#endif
    :: tiles[e] != 0
    fi;
    i = 0; ok = 1
}

inline leave()
{
    i = 0; ok = 0; ended[r]++;
    if
    :: ended[r] == 2 * CLUSTERS ->
        ended[r] = 0; epoch[r]++;
        staged[r * 2] = 0; staged[r * 2 + 1] = 0; freed[r * 2] = 0; freed[r * 2 + 1] = 0;
        broken[r * 2] = 0; broken[r * 2 + 1] = 0;
        if
        :: epoch[1 - r] > e -> tiles[e] = 0
        :: else
        fi
    :: else
    fi;
    e++
}

/* gemmar_courier_told */
inline ask()
{
    if
    :: told[1 - r] >= e ->
#ifdef EQUAL
        assert(told[1 - r] == e)
#endif
    :: left[r] -> ok = 0
    fi;
    asked = 1
}

proctype courier(byte r, c)
{
    byte e = 1, i, at;
    bit ok, asked;
    do
    :: e > EPOCHS -> break
    :: atomic { e <= EPOCHS && epoch[r] == e ->
        enter();
#ifndef DEAF
        ok = !left[r];
#endif
        if
        :: c == 0 && !left[r] -> telling[r] = e
        :: else
        fi }
        do
        :: atomic { i == 2 * WORK -> asked = 0; leave(); break }
        :: atomic { i < 2 * WORK && ok && !asked && ASKS && (told[1 - r] >= e || left[r]) -> ask() }
        :: atomic { i < 2 * WORK && (!ok || asked || !ASKS) && staged[r * 2 + c] > i ->
            if
            :: ADDS && broken[r * 2 + c] -> ok = 0
            :: ok && !ADDS ->
                at = AT(1 - r, e, TILE);
                assert(FREE(at));
                sent[at] = (left[1 - r] -> 0 : e); at = 0
            :: else
            fi;
            i++; freed[r * 2 + c] = i }
        od
    od
}

proctype consumer(byte r, c)
{
    byte e = 1, i, at;
    bit ok, took;
    do
    :: e > EPOCHS -> break
    :: atomic { e <= EPOCHS && epoch[r] == e -> enter() }
        do
        :: atomic { i == 2 * WORK -> leave(); break }
        :: atomic { i < 2 * WORK && ADDS && !took && HAS_COME(AT(r, e, TILE)) ->
            at = AT(r, e, TILE);
            assert(word[at] == e);
#ifndef KEEP
            back[at] = e;
#endif
            at = 0; took = 1 }
        :: atomic { i < 2 * WORK && ADDS && !took && left[r] ->
            if
            :: took = 1
            :: took = 1; ok = 0; broken[r * 2 + c] = 1
            fi }
        :: atomic { i < 2 * WORK && (!ADDS || took) && freed[r * 2 + c] >= i ->
            i++; staged[r * 2 + c] = i; took = 0 }
        od
    od
}

/* Nothing is lost: neither a part on another one, nor one that NONE comes behind. */
#define ARRIVES(i) \
    :: atomic { sent[i] != 0 -> \
        assert(word[i] == 0); word[i] = sent[i]; sent[i] = 0 } \
    :: atomic { back[i] != 0 -> \
        assert(back[i] == word[i]); word[i] = 0; back[i] = 0 }
/* The release: what the rank stored in calls before the one that it tells of has arrived. */
#ifdef RELAXED
#define STORED(r, store) 1
#else
#define STORED(r, store) (store == 0 || store > told[r])
#endif
#define TOLD(r) \
    :: atomic { told[r] < telling[r] && \
        STORED(r, back[r * 4]) && STORED(r, back[r * 4 + 1]) && \
        STORED(r, back[r * 4 + 2]) && STORED(r, back[r * 4 + 3]) && \
        STORED(r, sent[4 - r * 4]) && STORED(r, sent[5 - r * 4]) && \
        STORED(r, sent[6 - r * 4]) && STORED(r, sent[7 - r * 4]) -> told[r]++ }

active proctype memory()
{
end:
    do
    ARRIVES(0) ARRIVES(1) ARRIVES(2) ARRIVES(3)
    ARRIVES(4) ARRIVES(5) ARRIVES(6) ARRIVES(7)
    TOLD(0)
    TOLD(1)
#ifdef ABORT
    :: atomic { !left[0] -> leave_calls(0) }
    :: atomic { left[0] && !left[1] -> leave_calls(1) }
#endif
    od
}

init
{
    byte i;
    atomic {
        epoch[0] = 1; epoch[1] = 1;
        for (i : 0 .. CLUSTERS0 - 1) {
            run courier(0, i);
            run consumer(0, i)
        }
        for (i : 0 .. CLUSTERS1 - 1) {
            run courier(1, i);
            run consumer(1, i)
        }
    }
}
