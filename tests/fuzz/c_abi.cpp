// Decodes any bytes to calls of the C interface, in any order and with any arguments that a caller may pass: nulls,
// sizes of other versions, wrong counts, codes and strides. Arrays are as long as their counts say. Invariants: every
// call answers; a failure has a code and a message, and gives no object; a success gives one.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/c_api/srjit.h"
#include "tests/fuzz/harness/c_arguments.h"

namespace {

using namespace srjit::fuzz;

constexpr std::size_t kMostCalls = 24;

srjit_engine* engineOf(std::int32_t precision) {
  srjit_engine_options options{};
  options.size = sizeof options;
  options.device = "cpu";
  options.cache_directory = "";
  options.precision = precision;
  options.tier = SRJIT_TIER_INTERPRET;
  options.threads = 1;
  srjit_engine* engine = nullptr;
  require(srjit_engine_create(&options, &engine, nullptr) == SRJIT_OK, "an engine is made");
  return engine;
}

/// The objects that calls have made, and the calls.
class Session {
 public:
  explicit Session(ByteReader& bytes) : bytes_(bytes) {}

  void call() {
    using Call = void (Session::*)();
    constexpr Call kCalls[] = {&Session::dataset,  &Session::dataset,   &Session::part,   &Session::describe,
                               &Session::parse,    &Session::parse,     &Session::tokens, &Session::compile,
                               &Session::compile,  &Session::program,   &Session::loss,   &Session::loss,
                               &Session::numbers,  &Session::fit,       &Session::submit, &Session::take,
                               &Session::failures, &Session::constants, &Session::drop,   &Session::engine};
    error_.emplace_back(bytes_);
    (this->*kCalls[bytes_.below(std::size(kCalls))])();
    error_.clear();
  }

 private:
  srjit_error* error() { return bytes_.byte() >= 250 ? nullptr : error_.back().get(); }

  /// Checks an answer.
  bool answered(std::int32_t code) {
    require(code >= SRJIT_OK && code <= SRJIT_ERROR_LIMIT, "an answer is a code of srjit.h");
    srjit_error& error = *error_.back().get();
    if (code != SRJIT_OK && error.code != 0) {
      require(error.code == code, "the error has the code that the call gave");
      require(std::memchr(error.message, 0, sizeof error.message) != nullptr, "a message ends");
      require(error.message[0] != 0, "an error has a message");
    }
    return code == SRJIT_OK;
  }
  template <class T>
  void made(std::int32_t code, T* object, Pool<T>& pool) {
    const bool ok = answered(code);
    require(ok == (object != nullptr), "a success gives an object, a failure none");
    pool.add(object);
  }
  void give(srjit_failures* list) { failures_.add(list); }

  srjit_engine* pickEngine() {
    static srjit_engine* const kEngines[] = {engineOf(SRJIT_F64), engineOf(SRJIT_F32)};
    const std::uint8_t which = bytes_.byte();
    return which >= 252 ? nullptr : kEngines[which % 2];
  }
  std::vector<double> vectorOf(std::size_t most) { return bytes_.numbers(bytes_.byte() % (most + 1)); }

  void dataset() {
    const std::uint64_t rows = bytes_.byte() % 8, columns = bytes_.byte() % 4;
    MatrixArgument matrix(bytes_, rows, columns);
    MatrixArgument target(bytes_, bytes_.byte() >= 250 ? rows + 1 : rows, 1);
    MatrixArgument weights(bytes_, rows, bytes_.byte() >= 250 ? 2 : 1);
    const Texts names(bytes_, bytes_.byte() % 8 == 0 ? columns : 0);
    Sized<srjit_data> data(bytes_);
    const std::uint8_t members = bytes_.byte();
    data->columns = members == 255 ? nullptr : matrix.get();
    data->target = members % 2 == 1 ? target.get() : nullptr;
    data->weights = members % 4 == 3 ? weights.get() : nullptr;
    if (members % 8 == 0 && bytes_.byte() % 8 == 0) data->names = nullptr;
    data->stream = members == 254 ? 5 : 0;
    srjit_dataset* made_one = nullptr;
    made(srjit_dataset_create(pickEngine(), bytes_.byte() == 255 ? nullptr : data.get(), &made_one, error()), made_one,
         datasets_);
  }

  void part() {
    srjit_dataset* from = datasets_.pick(bytes_);
    srjit_dataset* made_one = nullptr;
    const std::uint8_t kind = bytes_.byte();
    const std::uint64_t a = kind >= 250 ? bytes_.little<std::uint64_t>() : bytes_.byte() % 8, b = bytes_.byte() % 8;
    if (kind % 3 == 0) {
      made(srjit_dataset_rows(pickEngine(), from, a, b, &made_one, error()), made_one, datasets_);
    } else if (kind % 3 == 1) {
      made(srjit_dataset_sample(pickEngine(), from, a, b, &made_one, error()), made_one, datasets_);
    } else {
      MatrixArgument weights(bytes_, b, 1);
      made(srjit_dataset_with_weights(pickEngine(), from, weights.get(), 0, &made_one, error()), made_one, datasets_);
    }
  }

  void describe() {
    Sized<srjit_dataset_info> info(bytes_);
    answered(srjit_dataset_get_info(datasets_.pick(bytes_), info.get(), error()));
    Sized<srjit_engine_info> of_engine(bytes_);
    answered(srjit_engine_get_info(pickEngine(), of_engine.get(), error()));
    Sized<srjit_cache_stats> stats(bytes_);
    answered(srjit_engine_cache_stats(pickEngine(), stats.get(), error()));
    srjit_engine_device(pickEngine());
    srjit_engine_notice(pickEngine(), bytes_.byte());
  }

  void parse() {
    const std::size_t count = bytes_.byte() % 4, columns = bytes_.byte() % 8 == 0 ? bytes_.byte() % 3 : 0;
    const Texts texts(bytes_, count), names(bytes_, columns);
    srjit_tokens* made_one = nullptr;
    srjit_failures* list = nullptr;
    made(srjit_parse(texts.get(), count, codeFrom(bytes_, SRJIT_TEXT_JSON), columns == 0 ? nullptr : names.get(),
                     columns, &made_one, bytes_.flag() ? &list : nullptr, error()),
         made_one, tokens_);
    give(list);
  }

  void tokens() {
    PopulationArgument population(bytes_);
    srjit_tokens* made_one = nullptr;
    srjit_failures* list = nullptr;
    made(srjit_simplify(population.get(), codeFrom(bytes_, SRJIT_MATH_FAST), &made_one, bytes_.flag() ? &list : nullptr,
                        error()),
         made_one, tokens_);
    give(list);
    const std::uint64_t capacity = bytes_.byte() % kMostNumbers;
    std::vector<char> exact(capacity);
    std::uint64_t length = 0;
    const std::int32_t code =
        srjit_print(population.get(), bytes_.byte() % 4, codeFrom(bytes_, SRJIT_TEXT_JSON), nullptr, 0,
                    capacity == 0 ? nullptr : exact.data(), capacity, bytes_.flag() ? &length : nullptr, error());
    if (answered(code) && capacity > 0) {
      require(std::memchr(exact.data(), 0, capacity) != nullptr, "a text ends");
    }
    Sized<srjit_population> view(bytes_);
    answered(srjit_tokens_get(tokens_.pick(bytes_), view.get(), error()));
  }

  void compile() {
    static constexpr const char* kPasses[] = {nullptr, nullptr, "standard", "none", "simplify,fma", "fma,,", "?"};
    Sized<srjit_compile_options> options(bytes_);
    constexpr std::int32_t kTiers[] = {SRJIT_TIER_OF_ENGINE, SRJIT_TIER_INTERPRET, SRJIT_TIER_DIRECT, -1, 9};
    options->tier = kTiers[bytes_.byte() % 16 < 12 ? 0 : bytes_.below(std::size(kTiers))];
    options->keep_order = codeFrom(bytes_, 1);
    options->expected_evaluations = bytes_.number();
    options->expected_rows = bytes_.byte();
    options->passes = kPasses[bytes_.below(std::size(kPasses))];
    options->data = bytes_.byte() % 8 == 0 ? datasets_.pick(bytes_) : nullptr;
    const srjit_compile_options* given = bytes_.flag() ? options.get() : nullptr;
    srjit_program* made_one = nullptr;
    if (bytes_.flag()) {
      made(srjit_compile_tokens(pickEngine(), tokens_.pick(bytes_), given, &made_one, error()), made_one, programs_);
    } else {
      PopulationArgument population(bytes_);
      made(srjit_compile(pickEngine(), population.get(), given, &made_one, error()), made_one, programs_);
    }
  }

  void program() {
    srjit_program* one = programs_.pick(bytes_);
    srjit_failures* list = nullptr;
    answered(srjit_program_failures(one, &list, error()));
    give(list);
    std::vector<std::uint64_t> offsets(bytes_.byte() % 6);
    answered(srjit_program_parameter_offsets(one, offsets.data(), offsets.size(), error()));
    std::vector<double> given(offsets.size()), starts(3 * offsets.size());
    const std::uint64_t count = given.empty() ? bytes_.little<std::uint64_t>() : bytes_.byte() % 3;
    answered(srjit_program_draw_starts(one, given.data(), given.size(), count, 1, starts.data(), error()));
    Sized<srjit_program_info> info(bytes_);
    answered(srjit_program_get_info(one, info.get(), error()));
    srjit_program_status(one, error());
    answered(srjit_prepare(pickEngine(), one, datasets_.pick(bytes_), nullptr, error()));
  }

  const srjit_loss_options* lossOptions(Sized<srjit_loss_options>& options, std::string& text) {
    static constexpr const char* kLosses[] = {nullptr,          "mse",    "mae",        "huber:0.5", "r2", "scaled-mse",
                                              "abs(f - y)^1.5", "huber:", "quantile:2", "log-loss",  "f +"};
    const std::uint8_t which = bytes_.byte();
    options->loss = kLosses[which % std::size(kLosses)];
    if (which >= 240) {
      text = srjit::fuzz::textOf(bytes_.take(bytes_.byte() % 24));
      options->loss = text.c_str();
    }
    options->nan = codeFrom(bytes_, SRJIT_NAN_REJECT);
    options->by = codeFrom(bytes_, SRJIT_BY_VARIABLES);
    return bytes_.flag() ? options.get() : nullptr;
  }

  /// Where losses go, with arrays of any lengths.
  struct LossesArgument {
    explicit LossesArgument(ByteReader& bytes)
        : losses(bytes), values(bytes.byte() % 6), rows(values.size()), derivatives(bytes.byte() % 8) {
      const std::uint8_t nulls = bytes.byte();
      losses->count = values.size();
      losses->values = nulls % 4 == 1 ? nullptr : values.data();
      losses->valid_rows = nulls % 8 >= 4 ? nullptr : rows.data();
      losses->derivative_count = derivatives.size();
      losses->derivatives = derivatives.data();
    }
    Sized<srjit_losses> losses;
    std::vector<double> values;
    std::vector<std::uint64_t> rows;
    std::vector<double> derivatives;
  };

  void loss() {
    LossesArgument out(bytes_);
    Sized<srjit_loss_options> options(bytes_);
    std::string text;
    const srjit_loss_options* given = lossOptions(options, text);
    const std::vector<double> parameters = vectorOf(5);
    srjit_dataset* data = datasets_.pick(bytes_);
    const std::uint8_t kind = bytes_.byte();
    std::int32_t code = SRJIT_OK;
    if (kind % 3 == 0) {
      code = srjit_loss(pickEngine(), programs_.pick(bytes_), data, parameters.data(), parameters.size(), given,
                        out.losses.get(), error());
    } else if (kind % 3 == 1) {
      code = srjit_gradient(pickEngine(), programs_.pick(bytes_), data, parameters.data(), parameters.size(), given,
                            out.losses.get(), error());
    } else {
      PopulationArgument population(bytes_);
      code = srjit_population_loss(pickEngine(), population.get(), data, parameters.data(), parameters.size(), given,
                                   nullptr, out.losses.get(), error());
    }
    if (answered(code)) give(out.losses->failures);
  }

  void numbers() {
    const std::int32_t type = codeFrom(bytes_, SRJIT_F64);
    const std::size_t count = bytes_.byte() % kMostNumbers;
    std::vector<unsigned char> out(count * (type == SRJIT_F32 ? sizeof(float) : sizeof(double)));
    const std::vector<double> parameters = vectorOf(5);
    srjit_failures* list = nullptr;
    if (bytes_.flag()) {
      answered(srjit_predict(pickEngine(), programs_.pick(bytes_), datasets_.pick(bytes_), parameters.data(),
                             parameters.size(), type, out.data(), count, &list, error()));
    } else {
      answered(srjit_jacobian(pickEngine(), programs_.pick(bytes_), datasets_.pick(bytes_), parameters.data(),
                              parameters.size(), codeFrom(bytes_, SRJIT_BY_VARIABLES), type, out.data(), count, &list,
                              error()));
    }
    give(list);
    // The engine is on the CPU, which refuses memory of a GPU.
    MatrixArgument on_device(bytes_, bytes_.byte() % 8, bytes_.byte() % 8);
    answered(srjit_predict_on_device(pickEngine(), programs_.pick(bytes_), datasets_.pick(bytes_), parameters.data(),
                                     parameters.size(), on_device.get(), 0, &list, error()));
    give(list);
    deviceLoss();
  }

  /// Expressions in a GPU's memory, which the engine does not have.
  void deviceLoss() {
    error_.emplace_back(bytes_);
    std::vector<std::int32_t> operators(bytes_.byte() % 4);
    for (std::int32_t& code : operators) code = codeFrom(bytes_, 62);
    Sized<srjit_device_loss_options> options(bytes_);
    Sized<srjit_loss_options> loss(bytes_);
    std::string text;
    options->operators = bytes_.byte() == 255 ? nullptr : operators.data();
    options->operator_count = operators.size();
    options->expressions = bytes_.byte() % 4;
    options->loss = lossOptions(loss, text);
    options->most_tokens = bytes_.byte();
    options->reserved = bytes_.byte() == 255 ? 1 : 0;
    srjit_device_loss* made_one = nullptr;
    const bool ok = answered(srjit_device_loss_create(
        pickEngine(), datasets_.pick(bytes_), bytes_.byte() == 255 ? nullptr : options.get(), &made_one, error()));
    require(!ok && made_one == nullptr, "an engine on the CPU has no memory of a GPU");
    Sized<srjit_device_population> population(bytes_);
    Sized<srjit_device_loss_outputs> out(bytes_);
    error_.emplace_back(bytes_);
    require(!answered(srjit_device_loss_submit(made_one, population.get(), out.get(), 0, error())), "there is no loss");
    srjit_device_loss_free(made_one);
  }

  /// Where fits go.
  struct FitsArgument {
    explicit FitsArgument(ByteReader& bytes)
        : fits(bytes), losses(bytes.byte() % 6), statuses(losses.size()), parameters(bytes.byte() % 6) {
      fits->count = losses.size();
      fits->losses = losses.data();
      fits->statuses = statuses.data();
      fits->parameter_count = parameters.size();
      fits->parameters = parameters.data();
    }
    Sized<srjit_fits> fits;
    std::vector<double> losses;
    std::vector<std::int32_t> statuses;
    std::vector<double> parameters;
  };
  const srjit_fit_options* fitOptions(Sized<srjit_fit_options>& options) {
    options->iterations = 1 + bytes_.byte() % 4;
    options->loss_tolerance = bytes_.byte() % 4 == 0 ? bytes_.number() : 0;
    options->stop = bytes_.byte() % 4 == 0 ? stops_.pick(bytes_) : nullptr;
    bounds_ = vectorOf(4);
    options->bounds = bytes_.byte() % 4 == 0 ? bounds_.data() : nullptr;
    options->bound_count = options->bounds == nullptr ? 0 : bounds_.size();
    return options.get();
  }

  void fit() {
    if (bytes_.byte() % 8 == 0) {
      srjit_stop* made_one = nullptr;
      made(srjit_stop_create(&made_one, error()), made_one, stops_);
      if (bytes_.flag()) srjit_stop_request(made_one);
    }
    FitsArgument out(bytes_);
    Sized<srjit_fit_options> options(bytes_);
    const srjit_fit_options* given = fitOptions(options);
    const std::vector<double> starts = vectorOf(6);
    if (answered(srjit_fit(pickEngine(), programs_.pick(bytes_), datasets_.pick(bytes_), starts.data(), starts.size(),
                           given, out.fits.get(), error()))) {
      give(out.fits->failures);
    }
  }

  void submit() {
    const std::vector<double> parameters = vectorOf(5);
    srjit_program* one = programs_.pick(bytes_);
    srjit_dataset* data = datasets_.pick(bytes_);
    srjit_engine* engine = pickEngine();
    srjit_pending* made_one = nullptr;
    const std::uint8_t kind = bytes_.byte();
    std::int32_t code = SRJIT_OK;
    if (kind % 4 == 0) {
      code = srjit_submit_loss(engine, one, data, parameters.data(), parameters.size(), nullptr, &made_one, error());
    } else if (kind % 4 == 1) {
      code =
          srjit_submit_gradient(engine, one, data, parameters.data(), parameters.size(), nullptr, &made_one, error());
    } else if (kind % 4 == 2) {
      PopulationArgument population(bytes_);
      code = srjit_submit_population_loss(engine, population.get(), data, parameters.data(), parameters.size(), nullptr,
                                          nullptr, &made_one, error());
    } else {
      Sized<srjit_fit_options> options(bytes_);
      options->iterations = 2;
      code =
          srjit_submit_fit(engine, one, data, parameters.data(), parameters.size(), options.get(), &made_one, error());
    }
    made(code, made_one, pending_);
  }

  void take() {
    srjit_pending* one = pending_.pick(bytes_);
    srjit_pending_ready(one);
    const std::uint8_t kind = bytes_.byte();
    if (kind % 8 == 0) srjit_pending_wait(one);
    if (kind % 3 == 0) {
      LossesArgument out(bytes_);
      if (answered(srjit_pending_losses(one, out.losses.get(), error()))) give(out.losses->failures);
    } else if (kind % 3 == 1) {
      FitsArgument out(bytes_);
      if (answered(srjit_pending_fits(one, out.fits.get(), error()))) give(out.fits->failures);
    } else {
      srjit_failures* list = nullptr;
      answered(srjit_pending_failures(one, &list, error()));
      give(list);
    }
  }

  void failures() {
    srjit_failures* list = failures_.pick(bytes_);
    const std::uint64_t count = srjit_failures_count(list), i = bytes_.byte() % 4;
    std::uint64_t expression = 0;
    Sized<srjit_error> said(bytes_);
    const std::int32_t code =
        srjit_failures_get(list, i, bytes_.flag() ? &expression : nullptr, bytes_.flag() ? said.get() : nullptr);
    require((code == SRJIT_OK) == (i < count), "failures are counted");
  }

  void constants() {
    Sized<srjit_op> op(bytes_);
    answered(srjit_op_get(bytes_.byte(), op.get(), error()));
    srjit_loss_name(bytes_.byte());
    srjit_fit_status_name(codeFrom(bytes_, 9));
    srjit_fault_text(codeFrom(bytes_, SRJIT_FAULT_SLOTS));
  }

  void drop() {
    const std::uint8_t which = bytes_.byte();
    if (which % 5 == 0) datasets_.drop(bytes_);
    if (which % 5 == 1) tokens_.drop(bytes_);
    if (which % 5 == 2) programs_.drop(bytes_);
    if (which % 5 == 3) pending_.drop(bytes_);
    if (which % 5 == 4) failures_.drop(bytes_);
  }

  void engine() {
    static constexpr const char* kDevices[] = {"cpu", "cuda:9", "cuda:", "gpu", "", "cuda:0,0", "cpu,cpu"};
    Sized<srjit_engine_options> options(bytes_);
    const std::uint8_t which = bytes_.byte();
    // One that can be made takes a while.
    options->device = kDevices[which < 250 ? 1 + which % (std::size(kDevices) - 1) : 0];
    options->cache_directory = "";
    options->precision = codeFrom(bytes_, SRJIT_F64);
    options->math = codeFrom(bytes_, SRJIT_MATH_FAST);
    options->tier = codeFrom(bytes_, SRJIT_TIER_DIRECT);
    options->threads = bytes_.byte() % 4;
    srjit_engine* made_one = nullptr;
    const bool ok = answered(srjit_engine_create(options.get(), &made_one, error()));
    require(ok == (made_one != nullptr), "a success gives an object, a failure none");
    srjit_engine_free(made_one);
  }

  ByteReader& bytes_;
  std::vector<Sized<srjit_error>> error_;
  Pool<srjit_dataset> datasets_;
  Pool<srjit_tokens> tokens_;
  Pool<srjit_program> programs_;
  Pool<srjit_pending> pending_;
  Pool<srjit_failures> failures_;
  Pool<srjit_stop> stops_;
  std::vector<double> bounds_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ByteReader bytes(data, size);
  Session session(bytes);
  for (std::size_t calls = 0; calls < kMostCalls && !bytes.isEmpty(); ++calls) session.call();
  return 0;
}
