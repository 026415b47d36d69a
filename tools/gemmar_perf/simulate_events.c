// SPDX-License-Identifier: Apache-2.0
// A queue of events: a binary heap.
#include "tools/gemmar_perf/simulate_events.h"

#include <errno.h>
#include <stdlib.h>

static bool before(const struct gemmar_sim_event *a, const struct gemmar_sim_event *b)
{
    return a->at < b->at || (a->at == b->at && a->order < b->order);
}

static void swap(struct gemmar_sim_event *a, struct gemmar_sim_event *b)
{
    struct gemmar_sim_event other = *a;

    *a = *b;
    *b = other;
}

int gemmar_sim_events_put(struct gemmar_sim_events *events, double at, uint32_t kind, uint32_t rank,
                          uint32_t index)
{
    size_t i = events->count;

    if (i == events->room) {
        size_t room = i == 0 ? 1024 : 2 * i;
        struct gemmar_sim_event *heap = realloc(events->heap, room * sizeof(*heap));

        if (heap == NULL) {
            return -ENOMEM;
        }
        events->heap = heap;
        events->room = room;
    }
    events->heap[i] = (struct gemmar_sim_event){at, events->next++, kind, rank, index};
    events->count++;
    for (; i > 0 && before(&events->heap[i], &events->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        swap(&events->heap[i], &events->heap[(i - 1) / 2]);
    }
    return 0;
}

bool gemmar_sim_events_take(struct gemmar_sim_events *events, struct gemmar_sim_event *out_event)
{
    struct gemmar_sim_event *heap = events->heap;
    size_t i = 0, child;

    if (events->count == 0) {
        return false;
    }
    *out_event = heap[0];
    heap[0] = heap[--events->count];
    while ((child = 2 * i + 1) < events->count) {
        if (child + 1 < events->count && before(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (!before(&heap[child], &heap[i])) {
            break;
        }
        swap(&heap[child], &heap[i]);
        i = child;
    }
    return true;
}

void gemmar_sim_events_release(struct gemmar_sim_events *events)
{
    free(events->heap);
    *events = (struct gemmar_sim_events){.heap = NULL};
}
