// Programs on the processor: a register machine over blocks of rows, or machine code per batch.
#pragma once

#include <memory>
#include <string>

#include "compiler/host/jit.h"
#include "runtime/cache/kernels.h"
#include "runtime/evaluation/executor.h"

namespace srjit {

/// Objects for this processor, kept in a cache.
HostObjects keptIn(std::shared_ptr<KernelCache> cache, const HostTarget& target);

/// `threads` as Engine::create() has resolved it. Of the options, precision and math count. `cache` keeps handlers and
/// losses.
std::unique_ptr<Executor> makeHostExecutor(const EngineOptions& options, unsigned threads,
                                           std::shared_ptr<KernelCache> cache);

/// What makes evaluation slow on a processor, as a sentence; empty if nothing does.
std::string missingOf(const HostTarget& processor);

}  // namespace srjit
