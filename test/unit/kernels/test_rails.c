// SPDX-License-Identifier: Apache-2.0
// Rails by distance, and shared evenly where distance does not tell.
#include <stdio.h>
#include <string.h>

#include <check.h>

#include "kernels/rails.h"
#include "test/unit/tools/tap.h"

#define MOST 8

static struct gemmar_transport_device devices[MOST];
static struct gemmar_pci_place places[MOST];

/* Device or GPU `unit` of switch `bridge`; switches 0 and 1 are below NUMA node 0, others node 1.
 */
static void path_of(char *out, size_t bytes, uint32_t bridge, uint32_t unit)
{
    (void)snprintf(out, bytes,
                   "/sys/devices/pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0/0000:%02x:%02x.0/"
                   "0000:%02x:00.0",
                   bridge, bridge, bridge + 16, bridge + 32, unit, 64 + 8 * bridge + unit);
}

static void put_device(uint32_t i, uint32_t bridge, uint32_t unit)
{
    path_of(devices[i].pci_path, sizeof(devices[i].pci_path), bridge, unit);
    devices[i].numa_node = bridge < 2 ? 0 : 1;
}

static void put_gpu(uint32_t g, uint32_t bridge, uint32_t unit)
{
    path_of(places[g].path, sizeof(places[g].path), bridge, unit);
    places[g].numa_node = bridge < 2 ? 0 : 1;
}

static void hide_all(void)
{
    memset(devices, 0, sizeof(devices));
    memset(places, 0, sizeof(places));
    for (uint32_t i = 0; i < MOST; i++) {
        devices[i].numa_node = -1;
        places[i].numa_node = -1;
    }
}

/* What local rank `local` of `locals` chooses, and what it can send. */
static uint32_t choose(uint32_t count, uint32_t locals, uint32_t local, uint32_t rails,
                       uint32_t *out)
{
    struct gemmar_place place = {.local = local, .locals = locals};

    return gemmar_rails_choose(devices, count, places, &place, rails, out);
}

static uint32_t one(uint32_t count, uint32_t local)
{
    uint32_t rail = UINT32_MAX;

    (void)choose(count, MOST, local, 1, &rail);
    return rail;
}

START_TEST(hidden_paths_share_evenly)
{
    uint32_t rails[2];

    hide_all();
    for (uint32_t local = 0; local < MOST; local++) {
        ck_assert_uint_eq(one(3, local), local % 3);
    }
    for (uint32_t local = 0; local < 2; local++) {
        (void)choose(5, 2, local, 2, rails);
        ck_assert_uint_eq(rails[0], 2 * local);
        ck_assert_uint_eq(rails[1], 2 * local + 1);
    }
}
END_TEST

/* As in a machine of eight GPUs with a NIC each, which the system lists in another order. */
START_TEST(a_gpu_takes_the_nic_of_its_switch)
{
    hide_all();
    for (uint32_t i = 0; i < 4; i++) {
        put_device(i, 3 - i, 1);
        put_gpu(i, i, 2);
    }
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(one(4, i), 3 - i);
    }
}
END_TEST

START_TEST(two_gpus_of_a_switch_share_its_nics)
{
    hide_all();
    put_device(0, 2, 1);
    put_device(1, 0, 1);
    put_device(2, 0, 3);
    put_gpu(0, 0, 2);
    put_gpu(1, 0, 4);
    put_gpu(2, 0, 5);
    put_gpu(3, 3, 1);
    ck_assert_uint_eq(one(3, 0), 1);
    ck_assert_uint_eq(one(3, 1), 2);
    ck_assert_uint_eq(one(3, 2), 1); /* again, and not the one of the other NUMA node */
    ck_assert_uint_eq(one(3, 3), 0);
}
END_TEST

START_TEST(more_rails_go_further_away)
{
    uint32_t rails[3];

    hide_all();
    put_device(0, 3, 1);
    put_device(1, 1, 1);
    put_device(2, 0, 1);
    put_gpu(0, 0, 2);
    (void)choose(3, 1, 0, 3, rails);
    ck_assert_uint_eq(rails[0], 2); /* the switch */
    ck_assert_uint_eq(rails[1], 1); /* the NUMA node */
    ck_assert_uint_eq(rails[2], 0);
}
END_TEST

START_TEST(ranks_of_a_device_share_its_rate)
{
    uint32_t rails[2];

    hide_all();
    for (uint32_t i = 0; i < 3; i++) {
        devices[i].speed_mbps = 400000;
    }
    ck_assert_uint_eq(choose(1, 4, 2, 1, rails), 100000);
    ck_assert_uint_eq(choose(3, 1, 0, 2, rails), 800000);
    ck_assert_uint_eq(choose(3, 4, 0, 1, rails), 200000); /* with rank 3 */
    ck_assert_uint_eq(choose(3, 4, 1, 1, rails), 400000);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        hidden_paths_share_evenly,           a_gpu_takes_the_nic_of_its_switch,
        two_gpus_of_a_switch_share_its_nics, more_rails_go_further_away,
        ranks_of_a_device_share_its_rate,    NULL};

    return tap_run("rails", tests);
}
