// SPDX-License-Identifier: Apache-2.0
// Fuzz target: the grammar of NCCL_IB_HCA. Text that is not understood must never match every
// device, and what is listed must match itself.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "transport/hca_filter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct gemmar_hca_filter filter, before;
    char why[128] = "", *text = malloc(bytes + 1);

    check(text != NULL);
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    memset(&filter, 0x5a, sizeof(filter));
    memcpy(&before, &filter, sizeof(before));
    if (gemmar_hca_filter_parse(text, &filter, why, sizeof(why)) != 0) {
        check(why[0] != '\0');
        check(memcmp(&before, &filter, sizeof(before)) == 0);
        free(text);
        return 0;
    }
    check(filter.count <= GEMMAR_HCA_FILTER_ENTRIES);
    check((filter.count == 0) == (text[0] == '\0'));
    for (int i = 0; i < filter.count; i++) {
        const char *name = filter.entry[i].name;
        int port = filter.entry[i].port;

        check(memchr(name, '\0', GEMMAR_HCA_NAME_BYTES) != NULL && name[0] != '\0');
        check(port == -1 || port > 0);
        check(gemmar_hca_filter_match(&filter, name, port > 0 ? port : 1) == !filter.exclude);
    }
    free(text);
    return 0;
}
