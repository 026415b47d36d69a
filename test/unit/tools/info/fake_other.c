// SPDX-License-Identifier: Apache-2.0
// A network plugin that is not gemmar's, for gemmar_info.
extern const int ncclNetPlugin_v10;
__attribute__((visibility("default"))) const int ncclNetPlugin_v10 = 10;
