// SPDX-License-Identifier: Apache-2.0
// The command line: what is taken, what is refused with one sentence.
#include <stdio.h>
#include <string.h>

#include "test/unit/tools/tap.h"
#include "tools/gemmar_perf/options.h"

static char why[1024];
static struct gemmar_perf_options options;

static enum gemmar_perf_parse parse(const char *line)
{
    static char copy[512];
    char *argv[64], *save;
    int argc = 0;

    (void)snprintf(copy, sizeof(copy), "gemmar_perf %s", line);
    why[0] = '\0';
    for (char *word = strtok_r(copy, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save)) {
        argv[argc++] = word;
    }
    argv[argc] = NULL;
    return gemmar_perf_options_parse(argc, argv, &options, why, sizeof(why));
}

START_TEST(a_full_command_line)
{
    ck_assert_int_eq(
        parse("--device cpu --nodes 2 --ranks-per-node 4 -m 1,2 -n 8:32:x2 -k 5 --dtype fp16 "
              "--layout nt --algo two-shot --signal imm --iters 7 --warmup 0 --check --skew 50 "
              "--seed 0x10 --timeout 1.5 --hca soft --local-facts vary --runs 2"),
        GEMMAR_PERF_PARSE_RUN);
    ck_assert_uint_eq(options.nodes, 2);
    ck_assert_uint_eq(options.ranks_per_node, 4);
    ck_assert_uint_eq(options.shapes.count, 6);
    ck_assert_int_eq(options.dtype, gemmarFloat16);
    ck_assert_int_eq(options.algo, gemmarAlgoTwoShot);
    ck_assert(options.trans_b && options.imm && options.check && options.vary_facts);
    ck_assert_uint_eq(options.iters, 7);
    ck_assert_uint_eq(options.seed, 16);
    ck_assert_uint_eq(options.timeout_ms, 1500);
    ck_assert_int_eq(options.hca, GEMMAR_PERF_HCA_SOFT);
}
END_TEST

START_TEST(defaults)
{
    ck_assert_int_eq(parse(""), GEMMAR_PERF_PARSE_RUN);
    ck_assert_uint_eq(options.shapes.count, 1);
    ck_assert_int_eq(options.shapes.shape[0].m, 1024);
    ck_assert_int_eq(options.dtype, gemmarBfloat16);
    ck_assert_uint_eq(options.nodes * options.ranks_per_node, 1);
}
END_TEST

START_TEST(a_model_at_its_tensor_parallel_size)
{
    ck_assert_int_eq(parse("--model Llama-3-70B:mlp-down --tp 8 -m 16"), GEMMAR_PERF_PARSE_RUN);
    ck_assert_uint_eq(options.shapes.count, 1);
    ck_assert_int_eq(options.shapes.shape[0].k, 3584);
    ck_assert_int_eq(parse("--model Llama-3-70B -n 5"), GEMMAR_PERF_PARSE_BAD);
}
END_TEST

START_TEST(calls_on_gpus)
{
    ck_assert_int_eq(parse("--device cuda --gpus 3,1 --graph --baseline --output plain "
                           "--check-rows 64 -m 5"),
                     GEMMAR_PERF_PARSE_RUN);
    ck_assert(options.cuda && options.graph && options.baseline && options.plain);
    ck_assert_uint_eq(options.check_rows, 64);
    ck_assert_uint_eq(options.gpu_count, 2);
    ck_assert_uint_eq(options.gpus[0], 3);
    ck_assert_uint_eq(options.gpus[1], 1);
    ck_assert_int_eq(parse("--device cpu"), GEMMAR_PERF_PARSE_RUN);
    ck_assert(!options.cuda && options.gpu_count == 0);
}
END_TEST

START_TEST(random_shapes_come_beside_those_that_are_named)
{
    ck_assert_int_eq(parse("--random 20 --largest 99 --seed 5"), GEMMAR_PERF_PARSE_RUN);
    ck_assert_uint_eq(options.shapes.count, 20);
    ck_assert_int_eq(parse("--random 20 --shapes 1x2x3"), GEMMAR_PERF_PARSE_RUN);
    ck_assert_uint_eq(options.shapes.count, 21);
    ck_assert_int_eq(parse("--random 2 -m 5"), GEMMAR_PERF_PARSE_RUN);
    ck_assert_uint_eq(options.shapes.count, 3);
}
END_TEST

START_TEST(bad_input_is_refused_and_named)
{
    static const struct {
        const char *line, *named;
    } bad[] = {
        {"--frobnicate", "--frobnicate"},
        {"-z", "-z"},
        {"-m -5", "-5"},
        {"-m", "-m"},
        {"-n 1:2:x0", "1:2:x0"},
        {"--nodes 0", "--nodes 0"},
        {"--nodes 2x", "2x"},
        {"--iters -1", "--iters -1"},
        {"--dtype int8", "bf16, fp16 or fp32"},
        {"--device tpu", "want cpu or cuda"},
        {"--graph", "--graph needs --device cuda"},
        {"--baseline", "--baseline needs --device cuda"},
        {"--output plain", "--output plain needs --device cuda"},
        {"--gpus 0", "--gpus needs --device cuda"},
        {"--check-rows 4", "--check-rows needs --device cuda"},
        {"--tune t", "--tune needs --device cuda"},
        {"--device cuda --tune t --tile-n 256", "--tune does not go with --tile-n"},
        {"--device cuda --tune t --iters 0", "--tune does not go with --iters 0"},
        {"--device cuda --gpus 0:40", "--gpus 0:40"},
        {"--device cuda --output pinned", "registered or plain"},
        {"--device cuda --dtype fp32", "fp32"},
        {"--device cuda --input-b x.npy", "--input-b"},
        {"--random 5000", "5000"},
        {"--algo ring", "two-shot"},
        {"--timeout 0", "--timeout 0"},
        {"--timeout nan", "nan"},
        {"--model GPT-9", "GPT-9"},
        {"extra", "extra"},
        {"--input-a /nonexistent.npy", "/nonexistent.npy"},
        {"--mix 5 --input-a x.npy", "--mix"},
        {"--ranks-per-node 17", "17"},
        {"--ranks-per-node 18446744073709551617", "18446744073709551617"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(parse(bad[i].line) == GEMMAR_PERF_PARSE_BAD, "'%s' was taken", bad[i].line);
        ck_assert_msg(strstr(why, bad[i].named) != NULL, "'%s': %s", bad[i].line, why);
        ck_assert_ptr_null(strchr(why, '\n'));
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {a_full_command_line,
                                  defaults,
                                  a_model_at_its_tensor_parallel_size,
                                  calls_on_gpus,
                                  random_shapes_come_beside_those_that_are_named,
                                  bad_input_is_refused_and_named,
                                  NULL};

    return tap_run("options", tests);
}
