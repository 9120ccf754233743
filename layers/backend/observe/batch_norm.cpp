// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation of the compare backend.
#include "layers/backend/observe/comparison.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

std::string text(const Tensor& x, bool relu, bool residual) {
  return fmt::format("input {}{}{}", x.shape().str(), relu ? ", relu" : "", residual ? ", addend" : "");
}

}  // namespace

void CompareBackend::batch_norm_statistics(const Tensor& x, const Tensor& mean, const Tensor& variance) {
  Comparison c(*this, "batch_norm_statistics", text(x, false, false));
  c.reads(x).sets("mean", mean).sets("variance", variance);
  c.run([&](Backend& backend, const auto& at) { backend.batch_norm_statistics(at(x), at(mean), at(variance)); });
}

void CompareBackend::batch_norm_apply(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& gamma,
                                      const Tensor& beta, float epsilon, const Tensor& residual, bool relu,
                                      const Tensor& y) {
  Comparison c(*this, "batch_norm_apply", text(x, relu, static_cast<bool>(residual)));
  c.reads(x, mean, variance, gamma, beta, residual).sets("y", y);
  c.run([&](Backend& backend, const auto& at) {
    backend.batch_norm_apply(at(x), at(mean), at(variance), at(gamma), at(beta), epsilon, at(residual), relu, at(y));
  });
}

void CompareBackend::batch_norm_backward_reduce(const Tensor& dy, const Tensor& x, const Tensor& y, const Tensor& mean,
                                                const Tensor& variance, float epsilon, const Tensor& dgamma,
                                                const Tensor& dbeta) {
  Comparison c(*this, "batch_norm_backward_reduce", text(x, static_cast<bool>(y), false));
  c.reads(dy, x, y, mean, variance).sets("dgamma", dgamma).sets("dbeta", dbeta);
  c.run([&](Backend& backend, const auto& at) {
    backend.batch_norm_backward_reduce(at(dy), at(x), at(y), at(mean), at(variance), epsilon, at(dgamma), at(dbeta));
  });
}

void CompareBackend::batch_norm_backward_apply(const Tensor& dy, const Tensor& x, const Tensor& y, const Tensor& mean,
                                               const Tensor& variance, const Tensor& gamma, const Tensor& dgamma,
                                               const Tensor& dbeta, double count, float epsilon, const Tensor& dx) {
  Comparison c(*this, "batch_norm_backward_apply", text(x, static_cast<bool>(y), false));
  c.reads(dy, x, y, mean, variance, gamma, dgamma, dbeta).sets("dx", dx);
  c.run([&](Backend& backend, const auto& at) {
    backend.batch_norm_backward_apply(at(dy), at(x), at(y), at(mean), at(variance), at(gamma), at(dgamma), at(dbeta),
                                      count, epsilon, at(dx));
  });
}

void CompareBackend::batch_norm_backward_residual(const Tensor& dy, const Tensor& y, const Tensor& dresidual) {
  Comparison c(*this, "batch_norm_backward_addend", text(dy, static_cast<bool>(y), true));
  c.reads(dy, y).adds("daddend", dresidual);
  c.run([&](Backend& backend, const auto& at) { backend.batch_norm_backward_residual(at(dy), at(y), at(dresidual)); });
}

}  // namespace convoy
