// SPDX-License-Identifier: Apache-2.0
//
// convoy check: reads a config as a run would and prints all of it; for a cut model, where the cuts fall.
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <optional>
#include <vector>

#include "app/base/error_report.h"
#include "app/build/build_backend.h"
#include "app/build/build_data.h"
#include "app/build/build_layout.h"
#include "app/build/build_model.h"
#include "app/build/memory_check.h"
#include "app/build/memory_prediction.h"
#include "app/build/read_config.h"
#include "app/commands/commands.h"
#include "app/config/config_printer.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

// A batch norm may want more than one value: a step of one replica says so, and more replicas have no more.
void check_single_samples(const Config& given) {
  if (given.train.global_batch_size > schedule_choice(given.parallel, 1).microbatches) return;
  Config config = given;
  config.parallel.mode = ParallelMode::kData;
  const auto data = build_dataset(config, config.data.train, "data.train");
  Layout layout = plan_layout(config, 1);
  layout.partition = {{0, static_cast<int>(build_units(config, *data).size())}};
  static_cast<void>(
      predict_memory({config, layout, 0, data_shape(config, *data), std::nullopt, RunPurpose::kTraining, {}}));
}

// As comments, so that the output stays a config. The costs are measured here, as at the start of a run.
void print_stages(const Config& config) {
  const ParallelOptions& p = config.parallel;
  if (p.mode != ParallelMode::kModel && p.mode != ParallelMode::kPipeline) return;
  if (p.stages == 0) {
    std::cout << "\n# as many stages as ranks: `convoy train --dry-run` under mpirun shows the cut\n";
    return;
  }
  Layout layout = plan_layout(config, static_cast<int>(p.stages));
  const auto data = build_dataset(config, config.data.train, "data.train");
  const DeviceChoice device = choose_device(config, {.host = "this host"});
  const std::int64_t samples = layout.microbatch(config.train.global_batch_size);
  const auto infos = describe_model(config, *build_backend(config, device), *data, samples);
  if (p.partition.first_units.empty()) layout.costs = measure_units(config, *data, samples, device, 0, 1);
  cut_model(layout, config, infos, device.memory_bytes);
  std::cout << fmt::format("\n# {} stages, {}, {} microbatches of {} samples, one replica:\n", layout.schedule.stages,
                           layout.schedule.name, layout.schedule.microbatches, samples);
  const std::vector<std::string> stages = describe_stages(layout, infos);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const MemoryPrediction memory =
        predict_memory({config, layout, layout.mesh.world_rank(0, static_cast<int>(i)), data_shape(config, *data),
                        std::nullopt, RunPurpose::kTraining, device});
    std::cout << fmt::format("# stage {}: {}; predicted memory {} beside the program's own\n", i, stages[i],
                             format_memory(memory.tensors + memory.host()));
  }
}

}  // namespace

int check_command(const CheckArguments& arguments) {
  const Config config = read_config(arguments.config, arguments.overrides);
  print_note(config.note);
  add_places(config, [&] { check_single_samples(config); });
  std::cout << resolved_toml(config, true);
  add_places(config, [&] { print_stages(config); });
  return 0;
}

}  // namespace convoy
