// SPDX-License-Identifier: Apache-2.0
// Which devices a rank sends over.
#ifndef GEMMAR_KERNELS_RAILS_H
#define GEMMAR_KERNELS_RAILS_H

#include <stdint.h>

#include <gemmar/transport.h>

#include "kernels/call.h"
#include "transport/pci.h"

#define GEMMAR_RAILS_DEVICES 64 /* more are not looked at */

/*
 * `rails` different ones of devices[count] for the rank at `place`: the nearest to its GPU; of
 * those equally near the one that the local ranks before it use least. near[locals] is where the
 * GPUs sit; where a path is hidden, or on a CPU, all devices are equally near and every rank takes
 * its own run of them. Every rank works this out for itself: with the same devices they come to the
 * same answer. count >= rails >= 1.
 *
 * Gives back what the rank can send over them when all local ranks send, Mbit/s.
 */
uint32_t gemmar_rails_choose(const struct gemmar_transport_device *devices, uint32_t count,
                             const struct gemmar_pci_place *near, const struct gemmar_place *place,
                             uint32_t rails, uint32_t *out_rails);

#endif
