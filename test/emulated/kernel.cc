// SPDX-License-Identifier: Apache-2.0
// The tensor-core kernel and its launch, for emulated GPUs.
#include "kernels/fused_sm90.cu"
#include "kernels/fused_sm90_bf16.cu"
#include "kernels/fused_sm90_fp16.cu"
