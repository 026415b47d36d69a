// SPDX-License-Identifier: Apache-2.0
// Fuzz target: the choice in a GID table. Layout of the input: forced index, wanted version, wanted
// family, count of entries, then 17 bytes an entry (type, GID), then the address range as text.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "transport/ib_gid.h"

#define ENTRIES 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct gemmar_knobs knobs;
    static const union ibv_gid empty;
    struct gemmar_gid_entry entries[ENTRIES];
    char why[256] = "";
    int count = 0, index;

    if (bytes < 4) {
        return 0;
    }
    memset(&knobs, 0, sizeof(knobs));
    knobs.ib_gid_index = (int8_t)data[0];
    knobs.ib_roce_version = 1 + data[1] % 2;
    knobs.ib_addr_family = data[2] % 2;
    int wanted = data[3] % (ENTRIES + 1);

    data += 4;
    bytes -= 4;
    for (; count < wanted && bytes >= 17; count++, data += 17, bytes -= 17) {
        entries[count].type = (enum gemmar_gid_type)(data[0] % 3);
        memcpy(entries[count].gid.raw, data + 1, 16);
    }
    if (bytes >= sizeof(knobs.ib_addr_range)) {
        bytes = sizeof(knobs.ib_addr_range) - 1;
    }
    memcpy(knobs.ib_addr_range, data, bytes);

    index = gemmar_ib_gid_choose(entries, count, &knobs, why, sizeof(why));
    check(why[0] != '\0');
    check(index < count);
    if (index >= 0) {
        check(memcmp(entries[index].gid.raw, empty.raw, 16) != 0);
        check(knobs.ib_gid_index < 0 || index == knobs.ib_gid_index);
    }
    return 0;
}
