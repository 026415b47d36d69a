// SPDX-License-Identifier: Apache-2.0
// The tuning table: its text, the nearest entry, and that all ranks have rank 0's.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <check.h>

#include "kernels/communicator.h"
#include "kernels/dtype.h"
#include "kernels/tuning.h"

static struct gemmar_tuning table;
static char why[400];

static int parse(const char *text)
{
    memset(&table, 0x5a, sizeof(table));
    why[0] = '\0';
    return gemmar_tuning_parse(text, strlen(text), &table, why, sizeof(why));
}

START_TEST(a_table_with_comments)
{
    const struct gemmar_tuning_entry *e = table.entry;

    ck_assert_int_eq(parse("# M N K ...\n\n"
                           "8192 8192 4096 bf16 2 256x256 push 1 1048576 8 # 780 us\r\n"
                           "\t16  1024 0\tfp16 8 128x128 pull 16 0 1024\n"
                           "16 1024 0 fp16 2 128x128 exchange 1 0 1"),
                     0);
    ck_assert_uint_eq(table.count, 3);
    ck_assert(e[2].how.strategy == GEMMAR_STRATEGY_EXCHANGE);
    ck_assert(e[0].m == 8192 && e[0].n == 8192 && e[0].k == 4096);
    ck_assert(e[0].dtype == GEMMAR_DTYPE_BF16 && e[0].locals == 2);
    ck_assert(e[0].how.shape == GEMMAR_TILE_256X256 && e[0].how.lead == 1);
    ck_assert(e[0].how.strategy == GEMMAR_STRATEGY_PUSH && e[0].how.link_bytes == 1 << 20);
    ck_assert(e[1].dtype == GEMMAR_DTYPE_FP16 && e[1].how.strategy == GEMMAR_STRATEGY_PULL);
    ck_assert(e[1].how.band == 1024 && e[1].k == 0);
    ck_assert_int_eq(parse(""), 0);
    ck_assert_uint_eq(table.count, 0);
}
END_TEST

START_TEST(what_is_wrong_is_said_with_its_line)
{
    static const struct {
        const char *text, *say;
    } bad[] = {
        {"1 1 1 bf16 2 256x256 push 1 0", "line 1: want M N K"},
        {"\n1 1 1 bf16 2 256x256 push 1 0 8 9", "line 2: want M N K"},
        {"0 1 1 bf16 2 256x256 push 1 0 8", "line 1: '0' is not M"},
        {"1 -1 1 bf16 2 256x256 push 1 0 8", "'-1' is not N"},
        {"1 1 1x bf16 2 256x256 push 1 0 8", "'1x' is not K"},
        {"1 1 99999999999999999999 bf16 2 256x256 push 1 0 8", "is not K"},
        {"1 1 1 fp32 2 256x256 push 1 0 8", "'fp32' is not bf16 or fp16"},
        {"1 1 1 bf16 17 256x256 push 1 0 8", "'17' is not ranks"},
        {"1 1 1 bf16 2 64x256 push 1 0 8", "'64x256' is not 256x256"},
        {"1 1 1 bf16 2 256x256 shove 1 0 8", "'shove' is not push, pull or exchange"},
        {"1 1 1 bf16 2 256x256 push 0 0 8", "'0' is not a lead"},
        {"1 1 1 bf16 2 256x256 push 1 99999999 8", "is not link bytes"},
        {"1 1 1 bf16 2 256x256 push 1 0 0", "'0' is not a band"},
        {"1 1 1 bf16 2 256x256 push 1 0 000000000000000000000000008", "line 1: want M N K"},
        {"1 1 1 bf16 2 256x256 push 1 0 000000000000000000000008", "line 1: want M N K"},
        {"1 1 1 bf16 2 256x256 push 1 0 8\n1 1 1 bf16 2 128x128 pull 1 0 8", "line 2: a second"},
    };

    static const char zero[] = "1\0 1 1 bf16 2 256x256 push 1 0 8";

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(parse(bad[i].text), -EINVAL);
        ck_assert_msg(strstr(why, bad[i].say) != NULL, "'%s' gives '%s'", bad[i].text, why);
        ck_assert_int_eq(*(char *)&table, 0x5a);
    }
    ck_assert_int_eq(gemmar_tuning_parse(zero, sizeof(zero) - 1, &table, why, sizeof(why)),
                     -EINVAL);
}
END_TEST

START_TEST(a_full_table_and_a_large_file_are_refused)
{
    char *text = malloc(GEMMAR_TUNING_BYTES + 100), path[] = "/tmp/test_tuning_XXXXXX";
    size_t at = 0;
    FILE *file = fdopen(mkstemp(path), "w");

    for (int i = 1; i <= GEMMAR_TUNING_ENTRIES + 1; i++) {
        at += (size_t)sprintf(text + at, "%d 1 1 bf16 2 256x256 push 1 0 8\n", i);
        ck_assert_int_eq(parse(text) == 0, i <= GEMMAR_TUNING_ENTRIES);
    }
    ck_assert_ptr_nonnull(strstr(why, "line 257: a table has at most 256"));
    memset(text, '\n', GEMMAR_TUNING_BYTES + 1);
    ck_assert_uint_eq(fwrite(text, 1, GEMMAR_TUNING_BYTES, file), GEMMAR_TUNING_BYTES);
    ck_assert_int_eq(fflush(file), 0);
    ck_assert_int_eq(gemmar_tuning_read(path, &table, why, sizeof(why)), 0);
    ck_assert_int_eq(fputc('\n', file), '\n');
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(gemmar_tuning_read(path, &table, why, sizeof(why)), -EFBIG);
    ck_assert_ptr_nonnull(strstr(why, "at most 65536 bytes"));
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(gemmar_tuning_read(path, &table, why, sizeof(why)), -ENOENT);
    ck_assert_ptr_nonnull(strstr(why, path));
    free(text);
}
END_TEST

static int64_t found(int64_t m, int64_t n, int64_t k, uint32_t dtype, uint32_t locals)
{
    const struct gemmar_tuning_entry *e = gemmar_tuning_find(&table, m, n, k, dtype, locals);

    return e != NULL ? e->m : 0;
}

START_TEST(the_nearest_m_within_half_as_much_again)
{
    ck_assert_int_eq(parse("100 64 64 bf16 2 256x256 push 1 0 8\n"
                           "200 64 64 bf16 2 256x256 push 1 0 8\n"
                           "128 64 64 bf16 2 256x256 push 1 0 8\n"
                           "100 64 64 fp16 2 256x256 push 1 0 8\n"),
                     0);
    ck_assert_int_eq(found(100, 64, 64, GEMMAR_DTYPE_BF16, 2), 100);
    ck_assert_int_eq(found(128, 64, 64, GEMMAR_DTYPE_BF16, 2), 128);
    ck_assert_int_eq(found(112, 64, 64, GEMMAR_DTYPE_BF16, 2), 100);
    ck_assert_int_eq(found(114, 64, 64, GEMMAR_DTYPE_BF16, 2), 128);
    ck_assert_int_eq(found(67, 64, 64, GEMMAR_DTYPE_BF16, 2), 100);
    ck_assert_int_eq(found(66, 64, 64, GEMMAR_DTYPE_BF16, 2), 0);
    ck_assert_int_eq(found(300, 64, 64, GEMMAR_DTYPE_BF16, 2), 200);
    ck_assert_int_eq(found(301, 64, 64, GEMMAR_DTYPE_BF16, 2), 0);
    ck_assert_int_eq(found(100, 65, 64, GEMMAR_DTYPE_BF16, 2), 0);
    ck_assert_int_eq(found(100, 64, 63, GEMMAR_DTYPE_BF16, 2), 0);
    ck_assert_int_eq(found(100, 64, 64, GEMMAR_DTYPE_BF16, 4), 0);
    ck_assert_int_eq(found(128, 64, 64, GEMMAR_DTYPE_FP16, 2), 100);
    ck_assert_int_eq(found(0, 64, 64, GEMMAR_DTYPE_FP16, 2), 0);
    ck_assert_ptr_null(gemmar_tuning_find(NULL, 100, 64, 64, GEMMAR_DTYPE_BF16, 2));
}
END_TEST

START_TEST(a_line_is_read_back)
{
    struct gemmar_tuning_entry e = {
        .m = GEMMAR_TUNING_MAX_SIZE,
        .n = GEMMAR_TUNING_MAX_SIZE,
        .k = GEMMAR_TUNING_MAX_SIZE,
        .dtype = GEMMAR_DTYPE_FP16,
        .locals = GEMMAR_MAX_LOCAL_RANKS,
        .how = {GEMMAR_TILE_128X256, GEMMAR_STRATEGY_PULL, 16, GEMMAR_TUNING_MAX_LINK, 1024}};
    static struct gemmar_tuning put;
    char text[GEMMAR_TUNING_LINE_BYTES];

    ck_assert_int_eq(gemmar_tuning_put(&put, &e), 0);
    e.how.lead = 2;
    ck_assert_int_eq(gemmar_tuning_put(&put, &e), 0);
    ck_assert_uint_eq(put.count, 1);
    gemmar_tuning_line(&e, text, sizeof(text));
    ck_assert_int_eq(parse(text), 0);
    ck_assert_mem_eq(&table, &put, sizeof(table));
}
END_TEST

static uint64_t state = 88172645463325252u;

static uint32_t draw(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state % below);
}

/* Whatever the bytes are: a sentence, or a table that comes back from its own lines. */
START_TEST(damaged_text_is_refused_or_understood)
{
    static const char good[] = "8192 8192 4096 bf16 2 256x256 push 1 1048576 8 # us\n"
                               "16 1024 0 fp16 8 128x128 pull 16 0 1024\n";
    static const char bytes[] = "0123456789 \t\n#x-bfpushl\0\xff";
    static struct gemmar_tuning again;
    int taken = 0;

    for (int round = 0; round < 20000; round++) {
        size_t length = sizeof(good) - 1 - (draw(4) == 0 ? draw(sizeof(good) - 1) : 0);
        char *text = malloc(length); /* of its own, so that reading past its end is seen */

        memcpy(text, good, length);
        for (uint32_t i = draw(3); i > 0; i--) {
            text[draw((uint32_t)length)] = bytes[draw(sizeof(bytes) - 1)];
        }
        why[0] = '\0';
        if (gemmar_tuning_parse(text, length, &table, why, sizeof(why)) != 0) {
            ck_assert(strncmp(why, "line ", 5) == 0);
        } else {
            taken++;
            for (uint64_t i = 0; i < table.count; i++) {
                char line[GEMMAR_TUNING_LINE_BYTES];

                gemmar_tuning_line(&table.entry[i], line, sizeof(line));
                ck_assert_int_eq(gemmar_tuning_parse(line, strlen(line), &again, why, sizeof(why)),
                                 0);
                ck_assert_mem_eq(&again.entry[0], &table.entry[i], sizeof(again.entry[0]));
            }
        }
        free(text);
    }
    ck_assert_int_gt(taken, 1000);
}
END_TEST

/* ---- ranks: threads would do no more than these two calls after each other ------------------- */

#define RANKS 2

static char *record; /* of rank 0 */

static int gather(void *context, const void *mine, void *all, size_t bytes)
{
    const struct gemmarComm *comm = context;

    if (comm->place.rank == 0) {
        free(record);
        record = malloc(bytes);
        memcpy(record, mine, bytes);
        memcpy((char *)all + bytes, mine, bytes); /* rank 1 comes later; it has no news */
    } else {
        memcpy((char *)all + bytes, mine, bytes);
    }
    memcpy(all, record, bytes);
    return 0;
}

static struct gemmarComm *make_rank(uint32_t rank, const char *path)
{
    struct gemmarComm *comm = calloc(1, sizeof(*comm));

    comm->place.rank = rank;
    comm->place.ranks = RANKS;
    comm->bootstrap = (gemmarHostBootstrap_t){.size = sizeof(comm->bootstrap),
                                              .rank = (int)rank,
                                              .nranks = RANKS,
                                              .allGather = gather,
                                              .context = comm};
    (void)snprintf(comm->settings.tuning, sizeof(comm->settings.tuning), "%s", path);
    return comm;
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

START_TEST(all_ranks_have_the_table_of_rank_0)
{
    char path[] = "/tmp/test_tuning_XXXXXX";
    int fd = mkstemp(path);
    struct gemmarComm *comm[RANKS] = {make_rank(0, path), make_rank(1, "/nowhere")};
    struct gemmar_error error[RANKS] = {{0}};

    write_file(path, "8 8 8 bf16 2 256x128 push 3 0 8\n");
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(gemmar_comm_tune(comm[r], &error[r]), gemmarSuccess);
        ck_assert_uint_eq(comm[r]->settings.table->count, 1);
    }
    ck_assert_mem_eq(comm[0]->tuning, comm[1]->tuning, sizeof(*comm[0]->tuning));
    ck_assert_uint_eq(comm[1]->settings.table->entry[0].how.lead, 3);
    write_file(path, "8 8 8 bf16 2 256x128 push 3 0 8\n8 8 nonsense\n"); /* later: refused */
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(gemmar_comm_tune(comm[r], &error[r]), gemmarInvalidArgument);
        ck_assert_ptr_nonnull(strstr(error[r].text, "rank 0: GEMMAR_TUNING: /tmp/test_tuning_"));
        ck_assert_ptr_nonnull(strstr(error[r].text, "line 2: want"));
        ck_assert_uint_eq(comm[r]->settings.table->count, 1); /* the one it had */
        free(comm[r]->tuning);
        free(comm[r]);
    }
    free(record);
    (void)close(fd);
    (void)unlink(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tuning");
    TCase *all = tcase_create("tuning");
    SRunner *runner;
    int failed;

    tcase_add_test(all, a_table_with_comments);
    tcase_add_test(all, what_is_wrong_is_said_with_its_line);
    tcase_add_test(all, a_full_table_and_a_large_file_are_refused);
    tcase_add_test(all, the_nearest_m_within_half_as_much_again);
    tcase_add_test(all, a_line_is_read_back);
    tcase_add_test(all, damaged_text_is_refused_or_understood);
    tcase_add_test(all, all_ranks_have_the_table_of_rank_0);
    tcase_set_timeout(all, 30);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
