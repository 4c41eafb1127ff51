#include "runtime/pool/make_executor.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tbb/parallel_for.h>

#include "ir/text/lexer.h"
#include "runtime/cuda/context.h"
#include "runtime/host/executor.h"
#include "runtime/platform/guarded.h"
#include "runtime/pool/program.h"
#include "runtime/tiers/device_executor.h"

namespace srjit {
namespace {

constexpr std::string_view kCudaPrefix = "cuda:";

Error unknownDevice(std::string_view device) {
  return {Errc::kInvalid, fmt::format("device {}, expected {}", text::inQuotes(device), kDeviceForms), {}};
}

using MadeExecutor = Result<std::unique_ptr<Executor>>;

Result<std::shared_ptr<const Driver>> driverFor(const std::string& device, const GetDriver& get) {
  auto driver = get();
  if (driver) return driver;
  Error error = std::move(driver).error();
  error.message = fmt::format("device {}: {}", device, error.message);
  return error;
}

/// On one device, or several. Unless all that there are were asked for, each of them must work.
MadeExecutor makeOnDevices(EngineOptions& options, const std::vector<unsigned>& ordinals, const GetDriver& get_driver,
                           const std::shared_ptr<const ImageMaker>& images, std::vector<std::string>& notices) {
  const bool is_all = options.device == "cuda:all";
  const auto driver = driverFor(options.device, get_driver);
  if (!driver) return driver.error();
  const std::shared_ptr<KernelCache> cache = openKernelCache(options);
  const auto count = static_cast<unsigned>(ordinals.size());
  std::vector<std::optional<MadeExecutor>> made(count);
  // At the same time, since opening a device mostly waits for the driver. The devices share the threads.
  tbb::parallel_for(0U, count, [&](unsigned i) {
    EngineOptions own = options;
    own.device = nameOfDevices({ordinals[i]});
    own.threads = std::max(1U, options.threads / count + (i < options.threads % count ? 1 : 0));
    made[i] = guarded([&] { return makeDeviceExecutor(own, ordinals[i], *driver, images, cache); });
  });
  std::vector<unsigned> opened;
  std::vector<PoolDevice> devices;
  for (std::size_t i = 0; i < ordinals.size(); ++i) {
    MadeExecutor& one = *made[i];
    if (!one) {
      if (!is_all) return std::move(one).error();
      notices.push_back(one.error().message + "; the other devices compute without it");
      continue;
    }
    opened.push_back(ordinals[i]);
    devices.push_back({nameOfDevices({ordinals[i]}), std::move(*one)});
  }
  if (devices.empty()) return std::move(*made.front()).error();
  options.device = nameOfDevices(opened);
  if (devices.size() == 1) return std::move(devices.front().executor);
  return makePoolExecutor(options, std::move(devices));
}

}  // namespace

Result<std::optional<std::vector<unsigned>>> cudaOrdinals(std::string_view device,
                                                          const std::function<Result<std::size_t>()>& count) {
  using Ordinals = std::optional<std::vector<unsigned>>;
  if (!device.starts_with(kCudaPrefix)) return Ordinals();
  const std::string_view list = device.substr(kCudaPrefix.size());
  std::vector<unsigned> ordinals;
  if (list == "all") {
    const Result<std::size_t> all = count();
    if (!all) return all.error();
    if (*all == 0) return Error{Errc::kMachine, "device cuda:all, but this machine has no device", {}};
    ordinals.resize(*all);
    std::iota(ordinals.begin(), ordinals.end(), 0U);
    return Ordinals(std::move(ordinals));
  }
  const char* next = list.data();
  const char* const end = list.data() + list.size();
  for (;;) {
    unsigned ordinal = 0;
    const auto [after, error] = std::from_chars(next, end, ordinal);
    if (error != std::errc()) return unknownDevice(device);
    if (std::ranges::find(ordinals, ordinal) != ordinals.end()) {
      return Error{
          Errc::kInvalid, fmt::format("device {}, which has cuda:{} twice", text::inQuotes(device), ordinal), {}};
    }
    ordinals.push_back(ordinal);
    if (after == end) return Ordinals(std::move(ordinals));
    if (*after != ',') return unknownDevice(device);
    next = after + 1;
  }
}

std::string nameOfDevices(const std::vector<unsigned>& ordinals) {
  return fmt::format("{}{}", kCudaPrefix, fmt::join(ordinals, ","));
}

Result<std::unique_ptr<Executor>> makeExecutor(EngineOptions& options, const GetDriver& get_driver,
                                               const std::shared_ptr<const ImageMaker>& images,
                                               std::vector<std::string>& notices) {
  if (options.device == "auto") {
    EngineOptions first = options;
    first.device = "cuda:0";
    MadeExecutor made = makeOnDevices(first, {0}, get_driver, images, notices);
    if (made) {
      options = first;
      return made;
    }
    // Without a driver a GPU is not expected.
    if (get_driver()) notices.push_back(made.error().message + "; the processor computes instead");
    options.device = "cpu";
  }
  if (options.device == "cpu") {
    if (std::string missing = missingOf(detectHost()); !missing.empty()) notices.push_back(std::move(missing));
    return makeHostExecutor(options, options.threads, openKernelCache(options));
  }
  const auto ordinals = cudaOrdinals(options.device, [&]() -> Result<std::size_t> {
    const auto driver = driverFor(options.device, get_driver);
    if (!driver) return driver.error();
    const auto devices = listDevices(**driver);
    if (!devices) return devices.error();
    return devices->size();
  });
  if (!ordinals) return ordinals.error();
  if (*ordinals) return makeOnDevices(options, **ordinals, get_driver, images, notices);
  return unknownDevice(options.device);
}

}  // namespace srjit
