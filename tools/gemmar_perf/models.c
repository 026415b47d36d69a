// SPDX-License-Identifier: Apache-2.0
// The row-parallel projections of known models. Sizes are those of the models' published
// configurations: attn-out is (heads * value head size) x hidden, mlp-down is intermediate x
// hidden, expert-down the same for one routed expert.
#include "tools/gemmar_perf/models.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

static const struct gemmar_perf_layer layers[] = {
    {"Llama-3-8B", "attn-out", 4096, 4096},       {"Llama-3-8B", "mlp-down", 4096, 14336},
    {"Llama-3-70B", "attn-out", 8192, 8192},      {"Llama-3-70B", "mlp-down", 8192, 28672},
    {"Llama-3.1-405B", "attn-out", 16384, 16384}, {"Llama-3.1-405B", "mlp-down", 16384, 53248},
    {"Qwen2.5-7B", "attn-out", 3584, 3584},       {"Qwen2.5-7B", "mlp-down", 3584, 18944},
    {"Qwen2.5-32B", "attn-out", 5120, 5120},      {"Qwen2.5-32B", "mlp-down", 5120, 27648},
    {"Qwen2.5-72B", "attn-out", 8192, 8192},      {"Qwen2.5-72B", "mlp-down", 8192, 29568},
    {"Qwen3-32B", "attn-out", 5120, 8192},        {"Qwen3-32B", "mlp-down", 5120, 25600},
    {"Qwen3-235B-A22B", "attn-out", 4096, 8192},  {"Qwen3-235B-A22B", "expert-down", 4096, 1536},
    {"DeepSeek-V2", "attn-out", 5120, 16384},     {"DeepSeek-V2", "mlp-down", 5120, 12288},
    {"DeepSeek-V2", "expert-down", 5120, 1536},   {"DeepSeek-V3", "attn-out", 7168, 16384},
    {"DeepSeek-V3", "mlp-down", 7168, 18432},     {"DeepSeek-V3", "expert-down", 7168, 2048},
    {"Mistral-7B", "attn-out", 4096, 4096},       {"Mistral-7B", "mlp-down", 4096, 14336},
    {"Mixtral-8x7B", "attn-out", 4096, 4096},     {"Mixtral-8x7B", "expert-down", 4096, 14336},
    {"Mixtral-8x22B", "attn-out", 6144, 6144},    {"Mixtral-8x22B", "expert-down", 6144, 16384},
    {"Gemma-2-27B", "attn-out", 4608, 4096},      {"Gemma-2-27B", "mlp-down", 4608, 36864},
    {"GPT-3-175B", "attn-out", 12288, 12288},     {"GPT-3-175B", "mlp-down", 12288, 49152},
};
#define LAYERS (sizeof(layers) / sizeof(layers[0]))

int gemmar_perf_models_span(const char *name, const struct gemmar_perf_sizes *m, int64_t tp,
                            struct gemmar_perf_shapes *shapes, char *why, size_t why_bytes)
{
    const char *colon = strchr(name, ':');
    size_t length = colon != NULL ? (size_t)(colon - name) : strlen(name), before = shapes->count;

    for (size_t i = 0; i < LAYERS; i++) {
        const struct gemmar_perf_layer *l = &layers[i];
        struct gemmar_perf_sizes n = {1, {l->n}}, k = {1, {l->k / tp}};

        if (strlen(l->model) != length || strncasecmp(l->model, name, length) != 0 ||
            (colon != NULL && strcasecmp(l->layer, colon + 1) != 0)) {
            continue;
        }
        if (l->k % tp != 0) {
            (void)snprintf(why, why_bytes, "K %lld of %s %s does not divide by %lld ranks",
                           (long long)l->k, l->model, l->layer, (long long)tp);
            shapes->count = before;
            return -EINVAL;
        }
        if (gemmar_perf_shapes_span(m, &n, &k, shapes, why, why_bytes) != 0) {
            shapes->count = before;
            return -EINVAL;
        }
    }
    if (shapes->count == before) {
        (void)snprintf(why, why_bytes, "no model or layer '%s'; --model list shows them", name);
        return -EINVAL;
    }
    return 0;
}

void gemmar_perf_models_list(FILE *out)
{
    (void)fprintf(out, "%-18s %-12s %8s %8s\n", "model", "layer", "N", "K");
    for (size_t i = 0; i < LAYERS; i++) {
        (void)fprintf(out, "%-18s %-12s %8lld %8lld\n", layers[i].model, layers[i].layer,
                      (long long)layers[i].n, (long long)layers[i].k);
    }
}
