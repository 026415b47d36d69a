// SPDX-License-Identifier: Apache-2.0
// Which devices a rank sends over.
#include "kernels/rails.h"

#include <stdbool.h>

static uint32_t far(const struct gemmar_transport_device *d, const struct gemmar_pci_place *place)
{
    return (uint32_t)gemmar_pci_distance(place->path, place->numa_node, d->pci_path, d->numa_node);
}

/* The best device that the rank does not have yet. taken: rails of all ranks so far. */
static uint32_t best(const struct gemmar_transport_device *devices, uint32_t count,
                     const struct gemmar_pci_place *place, const uint32_t *taken, const bool *mine)
{
    uint32_t found = count;

    for (uint32_t i = 0; i < count; i++) {
        if (mine[i]) {
            continue;
        }
        if (found == count || far(&devices[i], place) < far(&devices[found], place) ||
            (far(&devices[i], place) == far(&devices[found], place) && taken[i] < taken[found])) {
            found = i;
        }
    }
    return found;
}

uint32_t gemmar_rails_choose(const struct gemmar_transport_device *devices, uint32_t count,
                             const struct gemmar_pci_place *near, const struct gemmar_place *place,
                             uint32_t rails, uint32_t *out_rails)
{
    uint32_t taken[GEMMAR_RAILS_DEVICES] = {0}, rate = 0;

    count = count < GEMMAR_RAILS_DEVICES ? count : GEMMAR_RAILS_DEVICES;
    for (uint32_t g = 0; g < place->locals; g++) {
        bool mine[GEMMAR_RAILS_DEVICES] = {false};

        for (uint32_t i = 0; i < rails; i++) {
            uint32_t device = best(devices, count, &near[g], taken, mine);

            mine[device] = true;
            taken[device]++;
            if (g == place->local) {
                out_rails[i] = device;
            }
        }
    }
    for (uint32_t i = 0; i < rails; i++) {
        rate += devices[out_rails[i]].speed_mbps / taken[out_rails[i]];
    }
    return rate;
}
