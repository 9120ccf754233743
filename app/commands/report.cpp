// SPDX-License-Identifier: Apache-2.0
//
// convoy report: reads the metrics of runs and writes one page about them.
#include <filesystem>
#include <iostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/commands.h"
#include "app/commands/write_result.h"
#include "app/report/page.h"
#include "app/report/report_run.h"
#include "layers/base/error.h"
#include "layers/base/message_text.h"

namespace convoy {

int report_command(const ReportArguments& arguments) {
  std::vector<ReportRun> runs;
  runs.reserve(arguments.runs.size());
  for (const std::string& path : arguments.runs) runs.push_back(read_run(path));
  tell_apart(runs);
  const std::string output = arguments.output.empty()
                                 ? (std::filesystem::path(runs.front().folder) / "report.html").string()
                                 : arguments.output;
  std::vector<std::string> read;
  for (const ReportRun& run : runs) {
    for (std::string& file : files_of_run(run.folder)) read.push_back(std::move(file));
  }
  check_results({{"-o", output}}, read);
  const std::string page = report_page(runs);
  try {
    write_output(output, std::as_bytes(std::span(page)));
  } catch (const Error& error) {
    fail_usage("{} (-o FILE names another place)", error.what());
  }
  std::cout << name_text(output) << '\n' << std::flush;
  return 0;
}

}  // namespace convoy
