// SPDX-License-Identifier: Apache-2.0
// The GID that is chosen: never a link-local or RoCE v1 one while a routable v2 one is there.
#include "transport/ib_gid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "run_suite.h"

#define ROWS 4

struct gid_case {
    const char *what;
    struct {
        const char *address; /* NULL: an empty slot */
        int version;
    } row[ROWS];
    int count;
    const char *knob, *value; /* one knob that differs from its default */
    int want;
    const char *why; /* a part of the reason */
};

static const struct gid_case cases[] = {
    {"the usual four",
     {{"fe80::1", 1}, {"fe80::1", 2}, {"10.0.0.1", 1}, {"10.0.0.1", 2}},
     4,
     NULL,
     NULL,
     3,
     "routable"},
    {"link-local first", {{"fe80::1", 2}, {"10.1.2.3", 2}}, 2, NULL, NULL, 1, "routable"},
    {"v1 alone", {{"10.0.0.1", 1}}, 1, NULL, NULL, 0, "RoCE v1"},
    {"IPv4 link-local", {{"169.254.7.7", 2}, {"10.0.0.1", 2}}, 2, NULL, NULL, 1, "routable"},
    {"two VLANs", {{"10.0.0.1", 2}, {"10.0.1.1", 2}}, 2, NULL, NULL, 0, "routable"},
    {"second VLAN by range",
     {{"10.0.0.1", 2}, {"10.0.1.1", 2}},
     2,
     "NCCL_IB_ADDR_RANGE",
     "10.0.1.0/24",
     1,
     "routable"},
    {"range of one address",
     {{"10.0.0.1", 2}, {"10.0.0.2", 2}},
     2,
     "NCCL_IB_ADDR_RANGE",
     "10.0.0.2/32",
     1,
     "routable"},
    {"IPv6 range",
     {{"10.0.0.1", 2}, {"2001:db8::1", 2}},
     2,
     "NCCL_IB_ADDR_RANGE",
     "2001:db8::/32",
     1,
     "routable"},
    {"nothing in range",
     {{"10.0.0.1", 2}},
     1,
     "NCCL_IB_ADDR_RANGE",
     "10.9.0.0/16",
     -ENOENT,
     "NCCL_IB_ADDR_RANGE"},
    {"no range",
     {{"10.0.0.1", 2}},
     1,
     "NCCL_IB_ADDR_RANGE",
     "10.9.0.0",
     -EINVAL,
     "NCCL_IB_ADDR_RANGE"},
    {"too many bits",
     {{"10.0.0.1", 2}},
     1,
     "NCCL_IB_ADDR_RANGE",
     "10.9.0.0/33",
     -EINVAL,
     "NCCL_IB_ADDR_RANGE"},
    {"IPv6 v2 before IPv4 v1", {{"10.0.0.1", 1}, {"2001:db8::1", 2}}, 2, NULL, NULL, 1, "v2"},
    {"routable v1 before link-local v2", {{"fe80::1", 2}, {"10.0.0.1", 1}}, 2, NULL, NULL, 1, "v1"},
    {"wanted family",
     {{"10.0.0.1", 2}, {"2001:db8::1", 2}},
     2,
     "NCCL_IB_ADDR_FAMILY",
     "AF_INET6",
     1,
     "routable"},
    {"wanted version",
     {{"10.0.0.1", 2}, {"10.0.0.1", 1}},
     2,
     "NCCL_IB_ROCE_VERSION_NUM",
     "1",
     1,
     "v1"},
    {"link-local alone is said", {{"fe80::1", 1}, {"fe80::1", 2}}, 2, NULL, NULL, 1, "link-local"},
    {"empty slots are skipped", {{NULL, 2}, {NULL, 1}, {"10.0.0.1", 2}}, 3, NULL, NULL, 2, "v2"},
    {"all empty", {{NULL, 0}, {NULL, 0}}, 2, NULL, NULL, -ENOENT, "no usable"},
    {"no table", {{NULL, 0}}, 0, NULL, NULL, -ENOENT, "no usable"},
    {"forced", {{"fe80::1", 1}, {"10.0.0.1", 2}}, 2, "NCCL_IB_GID_INDEX", "0", 0, "GID_INDEX"},
    {"forced beyond the table",
     {{"10.0.0.1", 2}},
     1,
     "NCCL_IB_GID_INDEX",
     "1",
     -EINVAL,
     "beyond the table"},
    {"forced far beyond",
     {{"10.0.0.1", 2}},
     1,
     "NCCL_IB_GID_INDEX",
     "65535",
     -EINVAL,
     "beyond the table"},
    {"forced empty slot",
     {{"10.0.0.1", 2}, {NULL, 2}},
     2,
     "NCCL_IB_GID_INDEX",
     "1",
     -EINVAL,
     "empty entry"},
};

static void fill(union ibv_gid *gid, const char *address)
{
    memset(gid, 0, sizeof(*gid));
    if (address == NULL || inet_pton(AF_INET6, address, gid->raw) == 1) {
        return;
    }
    gid->raw[10] = gid->raw[11] = 0xff;
    ck_assert_int_eq(inet_pton(AF_INET, address, gid->raw + 12), 1);
}

static void set(struct gemmar_knobs *knobs, const char *variable, const char *value)
{
    const struct gemmar_knob *table = gemmar_knob_table();
    char why[64];

    for (int i = 0; i < GEMMAR_KNOB_COUNT; i++) {
        const char *use = table[i].standard;

        if (variable != NULL && strcmp(table[i].variable, variable) == 0) {
            use = value;
        }
        ck_assert_int_eq(gemmar_knob_parse(knobs, &table[i], use, why, sizeof(why)), 0);
    }
}

/* the GID that can be reached, or a clear refusal. */
START_TEST(table_gives_this_index)
{
    const struct gid_case *c = &cases[_i];
    struct gemmar_knobs *knobs = calloc(1, sizeof(*knobs));
    struct gemmar_gid_entry entries[ROWS];
    char why[256] = "";

    ck_assert_ptr_nonnull(knobs);
    set(knobs, c->knob, c->value);
    for (int i = 0; i < c->count; i++) {
        fill(&entries[i].gid, c->row[i].address);
        entries[i].type = (enum gemmar_gid_type)c->row[i].version;
    }
    int got = gemmar_ib_gid_choose(entries, c->count, knobs, why, sizeof(why));
    ck_assert_msg(got == c->want, "%s: %d, not %d (%s)", c->what, got, c->want, why);
    ck_assert_msg(strstr(why, c->why) != NULL, "%s: '%s' lacks '%s'", c->what, why, c->why);
    free(knobs);
}
END_TEST

START_TEST(mapped_addresses_are_printed_as_ipv4)
{
    union ibv_gid gid;
    char text[INET6_ADDRSTRLEN];

    fill(&gid, "192.0.2.7");
    gemmar_ib_gid_text(&gid, text);
    ck_assert_str_eq(text, "192.0.2.7");
    fill(&gid, "2001:db8::7");
    gemmar_ib_gid_text(&gid, text);
    ck_assert_str_eq(text, "2001:db8::7");
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("all");

    tcase_add_loop_test(tests, table_gives_this_index, 0, (int)(sizeof(cases) / sizeof(cases[0])));
    tcase_add_test(tests, mapped_addresses_are_printed_as_ipv4);
    return run_suite("ib_gid", tests, 60);
}
