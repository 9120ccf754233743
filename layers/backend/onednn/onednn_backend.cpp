// SPDX-License-Identifier: Apache-2.0
//
// Construction and description of the CPU backend.
#include "layers/backend/onednn/onednn_backend.h"

#include <fmt/format.h>
#include <omp.h>

#include <cstring>
#include <string>

#include "layers/backend/onednn/onednn_state.h"
#include "layers/base/cpu_features.h"  // IWYU pragma: keep, of Arm

namespace convoy {

namespace {

std::string isa_name() {
#ifdef __aarch64__
  return arm_instructions(cpu_features());
#else
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41: return "SSE4.1";
    case dnnl::cpu_isa::avx: return "AVX";
    case dnnl::cpu_isa::avx2: return "AVX2";
    case dnnl::cpu_isa::avx2_vnni: return "AVX2 with VNNI";
    case dnnl::cpu_isa::avx512_core: return "AVX-512";
    case dnnl::cpu_isa::avx512_core_vnni: return "AVX-512 with VNNI";
    case dnnl::cpu_isa::avx512_core_bf16: return "AVX-512 with BF16";
    case dnnl::cpu_isa::avx512_core_amx: return "AVX-512 with AMX";
    default: return "generic instructions";
  }
#endif
}

}  // namespace

OnednnBackend::OnednnBackend(int threads, DType compute, const CpuRules& rules)
    : threads_(threads), compute_(compute), state_(std::make_unique<OnednnState>(compute, rules)) {
  omp_set_dynamic(0);
  omp_set_num_threads(threads);
}

OnednnBackend::~OnednnBackend() = default;

std::unique_ptr<Backend> OnednnBackend::with_direct_convolutions() const {
  return std::make_unique<OnednnBackend>(threads_, compute_, direct_rules());
}

bool OnednnBackend::multiplies_bf16() { return this_cpu().rules.bf16_products; }

std::string OnednnBackend::library_description() {
  const dnnl_version_t* v = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}, {}", v->major, v->minor, v->patch, isa_name());
}

std::string OnednnBackend::description() const {
  return fmt::format("cpu, {}, {} thread{}, {}{}", library_description(), threads_, threads_ == 1 ? "" : "s",
                     dtype_name(compute_), state_->upcasts ? " with products in float32" : "");
}

}  // namespace convoy
