// Programs on the processor: a register machine over blocks of rows, or machine code per batch.
#pragma once

#include <memory>
#include <string>

#include "compiler/host/jit.h"
#include "runtime/evaluation/executor.h"

namespace srjit {

/// `threads` as Engine::create() has resolved it. Errors: LLVM's.
Result<std::unique_ptr<Executor>> makeHostExecutor(const EngineOptions& options, unsigned threads);

/// What makes evaluation slow on a processor, as a sentence; empty if nothing does.
std::string missingOf(const HostTarget& processor);

}  // namespace srjit
