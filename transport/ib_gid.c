// SPDX-License-Identifier: Apache-2.0
// Which entry of a port's GID table to use.
#include "transport/ib_gid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_empty(const union ibv_gid *gid)
{
    static const union ibv_gid zero;

    return memcmp(gid, &zero, sizeof(zero)) == 0;
}

static bool is_ipv4(const union ibv_gid *gid)
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(gid->raw, prefix, sizeof(prefix)) == 0;
}

/* fe80::/10, and IPv4's 169.254/16. */
static bool is_link_local(const union ibv_gid *gid)
{
    return is_ipv4(gid) ? gid->raw[12] == 169 && gid->raw[13] == 254
                        : gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

void gemmar_ib_gid_text(const union ibv_gid *gid, char *text)
{
    if (is_ipv4(gid)) {
        (void)inet_ntop(AF_INET, gid->raw + 12, text, INET6_ADDRSTRLEN);
    } else {
        (void)inet_ntop(AF_INET6, gid->raw, text, INET6_ADDRSTRLEN);
    }
}

/* `range` is address/bits of either family. -EINVAL when it is not. */
static int in_range(const char *range, const union ibv_gid *gid)
{
    char address[INET6_ADDRSTRLEN];
    const char *slash = strchr(range, '/');
    uint8_t want[16];
    const uint8_t *have = gid->raw;
    char *end;
    long bits;
    bool four;

    if (slash == NULL || (size_t)(slash - range) >= sizeof(address)) {
        return -EINVAL;
    }
    memcpy(address, range, (size_t)(slash - range));
    address[slash - range] = '\0';
    four = inet_pton(AF_INET, address, want) == 1;
    if (!four && inet_pton(AF_INET6, address, want) != 1) {
        return -EINVAL;
    }
    bits = strtol(slash + 1, &end, 10);
    if (end == slash + 1 || *end != '\0' || bits < 0 || bits > (four ? 32 : 128)) {
        return -EINVAL;
    }
    if (four != is_ipv4(gid)) {
        return 0;
    }
    have += four ? 12 : 0;
    for (long b = 0; b < bits; b++) {
        if (((want[b / 8] ^ have[b / 8]) >> (7 - b % 8) & 1) != 0) {
            return 0;
        }
    }
    return 1;
}

static int forced(const struct gemmar_gid_entry *entries, int count, int index, char *why,
                  size_t why_bytes)
{
    if (index >= count || is_empty(&entries[index].gid)) {
        (void)snprintf(why, why_bytes, "NCCL_IB_GID_INDEX %d %s", index,
                       index >= count ? "is beyond the table" : "is an empty entry");
        return -EINVAL;
    }
    (void)snprintf(why, why_bytes, "NCCL_IB_GID_INDEX says so");
    return index;
}

int gemmar_ib_gid_choose(const struct gemmar_gid_entry *entries, int count,
                         const struct gemmar_knobs *knobs, char *why, size_t why_bytes)
{
    int best = -ENOENT, best_score = -1;

    if (knobs->ib_gid_index >= 0) {
        return forced(entries, count, (int)knobs->ib_gid_index, why, why_bytes);
    }
    for (int i = 0; i < count; i++) {
        const union ibv_gid *gid = &entries[i].gid;
        int inside, score;

        if (is_empty(gid)) {
            continue;
        }
        inside = knobs->ib_addr_range[0] != '\0' ? in_range(knobs->ib_addr_range, gid) : 1;
        if (inside < 0) {
            (void)snprintf(why, why_bytes, "NCCL_IB_ADDR_RANGE '%.64s' is no address/bits",
                           knobs->ib_addr_range);
            return -EINVAL;
        }
        score = (is_link_local(gid) ? 0 : 4) +
                ((int)entries[i].type == (int)knobs->ib_roce_version ? 2 : 0) +
                (is_ipv4(gid) == (knobs->ib_addr_family == 0) ? 1 : 0);
        if (inside && score > best_score) {
            best = i;
            best_score = score;
        }
    }
    if (best < 0) {
        (void)snprintf(why, why_bytes, "no usable entry among %d%s", count,
                       knobs->ib_addr_range[0] != '\0' ? " in NCCL_IB_ADDR_RANGE" : "");
        return best;
    }
    (void)snprintf(why, why_bytes, "%s address, RoCE v%d%s",
                   best_score >= 4 ? "routable" : "link-local", (int)entries[best].type,
                   best_score >= 4 ? "" : "; peers behind a router cannot be reached");
    return best;
}
