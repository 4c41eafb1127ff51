#include "compiler/sass/instruction.h"
#include "compiler/sass/cubin.h"
#include "compiler/target/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "ir/numbers/random.h"

namespace srjit::sass {
namespace {

using ::testing::StartsWith;

constexpr std::size_t kForms = static_cast<std::size_t>(Form::kNop) + 1;

class SassOf : public ::testing::TestWithParam<unsigned> {
 protected:
  unsigned architecture() const { return GetParam(); }
  Word encoded(const Instruction& instruction) const { return encode(instruction, architecture()); }
  template <class Change>
  bool changes(Form form, Change change) const {
    Instruction plain, other;
    plain.form = other.form = form;
    change(other);
    return encoded(plain) != encoded(other);
  }
  std::vector<Form> forms() const {
    std::vector<Form> available;
    for (std::size_t f = 0; f < kForms; ++f) {
      if (isAvailable(static_cast<Form>(f), architecture())) available.push_back(static_cast<Form>(f));
    }
    return available;
  }
  /// The bits of a field that the form has: those that a round trip keeps.
  template <class Field>
  Field bitsOf(Form form, Field Instruction::* field, Field base) const {
    Field bits = 0;
    for (unsigned bit = 0; bit < sizeof(Field) * 8; ++bit) {
      Instruction one;
      one.form = form;
      one.*field = static_cast<Field>(base ^ Field(Field{1} << bit));
      const auto back = decode(encoded(one), architecture());
      if (back && *back == one) bits = static_cast<Field>(bits | Field(Field{1} << bit));
    }
    return bits;
  }
};
INSTANTIATE_TEST_SUITE_P(, SassOf, ::testing::ValuesIn(directArchitectures().begin(), directArchitectures().end()),
                         [](const auto& made) { return fmt::format("sm_{}", made.param); });

TEST_P(SassOf, RowsHaveTheSlotsThatTheirFactsName) {
  for (const Form form : forms()) {
    const FormInfo& info = infoOf(form);
    SCOPED_TRACE(info.name);
    EXPECT_EQ(changes(form, [](Instruction& i) { i.destination = 1; }), info.result_registers != 0);
    for (std::size_t s = 0; s < 3; ++s) {
      EXPECT_EQ(changes(form, [&](Instruction& i) { i.sources[s] = 1; }), info.source_registers[s] != 0)
          << "source " << s;
      if (info.source_registers[s] != 0) continue;
      EXPECT_FALSE(changes(form, [&](Instruction& i) { i.negated = static_cast<std::uint8_t>(1U << s); }));
      EXPECT_FALSE(changes(form, [&](Instruction& i) { i.magnitude = static_cast<std::uint8_t>(1U << s); }));
    }
    EXPECT_EQ(changes(form, [](Instruction& i) { i.predicate = 1; }), info.writes_predicate);
    EXPECT_EQ(changes(form, [](Instruction& i) { i.condition = 1; }), info.reads_condition);
    EXPECT_TRUE(changes(form, [](Instruction& i) { i.guard = kNot + 2; }));
    EXPECT_TRUE(info.pipe == Pipe::kControl ? info.latency == 0 : info.latency >= 4) << int{info.latency};
  }
}

TEST_P(SassOf, EveryInstructionRoundTrips) {
  Random random(7);
  const auto bits = [&](auto mask) { return static_cast<decltype(mask)>(random.next() & mask); };
  for (const Form form : forms()) {
    const FormInfo& info = infoOf(form);
    const auto immediate = bitsOf<std::uint32_t>(form, &Instruction::immediate, 0);
    const auto modifier = bitsOf<std::uint8_t>(form, &Instruction::modifier, 0);
    const auto negated = bitsOf<std::uint8_t>(form, &Instruction::negated, 0);
    const auto magnitude = bitsOf<std::uint8_t>(form, &Instruction::magnitude, 0);
    for (int n = 0; n < 200; ++n) {
      Instruction i;
      i.form = form;
      i.guard = bits(std::uint8_t{15});
      if (info.result_registers != 0) i.destination = bits(std::uint8_t{255});
      for (std::size_t s = 0; s < 3; ++s) {
        if (info.source_registers[s] != 0) i.sources[s] = bits(std::uint8_t{255});
      }
      i.immediate = bits(immediate);
      i.modifier = bits(modifier);
      i.negated = bits(negated);
      i.magnitude = bits(magnitude);
      if (info.writes_predicate) i.predicate = bits(std::uint8_t{7});
      if (info.reads_condition) i.condition = bits(std::uint8_t{15});
      i.control = {bits(std::uint8_t{15}), (random.next() & 1) != 0, bits(std::uint8_t{7}),
                   bits(std::uint8_t{7}),  bits(std::uint8_t{63}),   bits(std::uint8_t{15})};
      const auto back = decode(encoded(i), architecture());
      ASSERT_TRUE(back) << info.name;
      EXPECT_EQ(*back, i) << print(i, true) << "\nwas decoded as\n" << print(*back, true);
      EXPECT_THAT(print(i).substr(i.guard == kTrue ? 0 : print(i).find(' ') + 1), StartsWith(std::string(info.name)));
    }
  }
}

// A field that is not printed would be lost in listings. IMAD's only bit of a modifier changes no result.
TEST_P(SassOf, EveryFieldIsPrinted) {
  for (const Form form : forms()) {
    const FormInfo& info = infoOf(form);
    SCOPED_TRACE(info.name);
    Instruction plain;
    plain.form = form;
    plain.destination = 2, plain.sources = {2, 2, 2}, plain.predicate = 2, plain.condition = 2;
    const auto isPrinted = [&](auto change) {
      Instruction other = plain;
      change(other);
      return print(other) != print(plain);
    };
    EXPECT_EQ(isPrinted([](Instruction& i) { i.destination = 1; }), info.result_registers != 0);
    for (std::size_t s = 0; s < 3; ++s) {
      if (info.source_registers[s] == 0) continue;
      EXPECT_TRUE(isPrinted([&](Instruction& i) { i.sources[s] = 1; })) << "source " << s;
    }
    EXPECT_EQ(isPrinted([](Instruction& i) { i.predicate = 1; }), info.writes_predicate);
    EXPECT_EQ(isPrinted([](Instruction& i) { i.condition = 1; }), info.reads_condition);
    if (bitsOf<std::uint32_t>(form, &Instruction::immediate, 0) != 0) {
      EXPECT_TRUE(isPrinted([](Instruction& i) { i.immediate = 16; }));
    }
    for (const auto signs : {&Instruction::negated, &Instruction::magnitude}) {
      const auto bits = bitsOf<std::uint8_t>(form, signs, 0);
      for (unsigned source = 0; source < 3; ++source) {
        const auto one = static_cast<std::uint8_t>(1U << source);
        if ((bits & one) == 0) continue;
        EXPECT_TRUE(isPrinted([&](Instruction& i) { i.*signs = one; })) << "source " << source;
      }
    }
    if (info.name.starts_with("IMAD")) continue;
    const auto modifier = bitsOf<std::uint8_t>(form, &Instruction::modifier, 0);
    for (unsigned bit = 0; bit < 8; ++bit) {
      const auto one = static_cast<std::uint8_t>(1U << bit);
      EXPECT_EQ(isPrinted([&](Instruction& i) { i.modifier = one; }), (modifier & one) != 0) << "bit " << bit;
    }
  }
}

TEST_P(SassOf, NegativeOffsetsRoundTrip) {
  for (const Form form : {Form::kLdg, Form::kStg, Form::kBra, Form::kBrx}) {
    for (const std::int32_t offset : {-16, -4096, -1048576}) {
      Instruction i;
      i.form = form;
      i.immediate = static_cast<std::uint32_t>(offset);
      EXPECT_EQ(decode(encoded(i), architecture()), i) << print(i);
    }
  }
}

TEST_P(SassOf, RandomWordsRoundTripOrAreRejected) {
  Random random(11);
  std::size_t decoded = 0;
  for (int n = 0; n < 20'000; ++n) {
    Word word = {random.next(), random.next()};
    if (n % 2 == 0) word.low = (word.low & ~std::uint64_t{0xfff}) | (encoded({}).low & 0xfff);
    const auto instruction = decode(word, architecture());
    if (!instruction) continue;
    ++decoded;
    EXPECT_EQ(encoded(*instruction), word);
  }
  EXPECT_LT(decoded, 20U) << "nearly all bits of a word are fixed or in a field";
  EXPECT_FALSE(decode({0, 0}, architecture()));
}

/// Words as nvdisasm lists them.
struct Listed {
  unsigned architecture;
  Word word;
  const char* text;
};
constexpr Listed kListed[] = {
    {80, {0xc000000500057221, 0x004fca0000000100}, "FADD R5, -R0, -|R5|"},
    {90, {0x40490fdb00057421, 0x004fca0000000000}, "FADD R5, R0, 3.1415927"},
    {90, {0x3e22f98300007820, 0x004fc8000040c000}, "FMUL.RZ R0, R0, 0.15915494"},
    {90, {0x3f80000005077423, 0x001fc80000000104}, "FFMA R7, -R5, R4, 1"},
    {90, {0x7f8000000300780b, 0x000fe40003f3d200}, "FSETP.NEU.FTZ.AND P1, PT, |R3|, +INF, PT"},
    {80, {0x3f80000004047808, 0x000fc80004800000}, "FSEL R4, R4, 1, !P1"},
    {90, {0x0000000500047308, 0x004e300000001000}, "MUFU.RCP R4, R5"},
    {100, {0x8000000000057307, 0x004e240000205000}, "FRND.FLOOR R5, -R0"},
    {80, {0x0000200402047981, 0x000ea4000c1e9d00}, "LDG.E.128.CONSTANT R4, desc[UR4][R2.64+0x20]"},
    {90, {0x00000c0502007986, 0x001fe2000c101904}, "STG.E desc[UR4][R2.64+0xc], R5"},
    {90, {0x00008400ff027b82, 0x000e220000000a00}, "LDC.64 R2, c[0x0][0x210]"},
    {90, {0x0000820000047ab9, 0x000fe40000000a00}, "ULDC.64 UR4, c[0x0][0x208]"},
    {120, {0x00006b00ff0477ac, 0x000e240008000a00}, "LDCU.64 UR4, c[0x0][0x358]"},
    {100, {0x0e001f0000057f89, 0x004e2800000e0000}, "SHFL.BFLY PT, R5, R0, 0x10, 0x1f"},
    {80, {0x0000000000ff7806, 0x000fe40000020000}, "VOTE.ALL P1, P0"},
    {80, {0xfffffff000007947, 0x000fc0000383ffff}, "BRA -0x10"},
    {90, {0xfffffffc00fc7947, 0x000fc0000383ffff}, "BRA -0x10"},
    {90, {0x0000000000608947, 0x000fec0003800000}, "@!P0 BRA 0x180"},
    {90, {0xfffffffc04d47949, 0x001fea000383ffff}, "BRX R4 -0xb0"},
    {80, {0x0000000204087819, 0x000fc800000006ff}, "SHF.L.U32 R8, R4, 0x2, RZ"},
    {90, {0x00000004ff057819, 0x000fc80000011600}, "SHF.R.U32.HI R5, RZ, 0x4, R0"},
    {90, {0x000000040e027825, 0x001fca00078e0002}, "IMAD.WIDE.U32 R2, R14, 0x4, R2"},
};

TEST(Sass, ListedWords) {
  for (const Listed& listed : kListed) {
    const auto instruction = decode(listed.word, listed.architecture);
    ASSERT_TRUE(instruction) << listed.text;
    EXPECT_EQ(print(*instruction), listed.text);
    EXPECT_EQ(encode(*instruction, listed.architecture), listed.word) << listed.text;
  }
}

TEST(Sass, ControlIsPrintedAndRead) {
  const auto instruction = decode({0x00000c0502007986, 0x001fe2000c101904}, 90);
  ASSERT_TRUE(instruction);
  EXPECT_EQ(instruction->control, (Control{1, true, kNoBarrier, kNoBarrier, 1, 0}));
  EXPECT_THAT(print(*instruction, true), ::testing::HasSubstr("wait 0      write - read - Y stall 1"));
}

TEST(Sass, DescriptorsAreLoadedByOneFormOnEachArchitecture) {
  for (const unsigned architecture : directArchitectures()) {
    const Form form = descriptorLoadOf(architecture);
    EXPECT_TRUE(isAvailable(form, architecture));
    EXPECT_NE(isAvailable(Form::kUldcDescriptor, architecture), isAvailable(Form::kLdcuDescriptor, architecture));
  }
}

TEST(Sass, DoubleInstructionsOfANumberWithoutARowHaveVariableLatency) {
  EXPECT_EQ(timingOf(Form::kDAddRR, 100), Timing::kFixed);
  EXPECT_EQ(timingOf(Form::kDAddRR, 101), Timing::kVariable);
}

}  // namespace
}  // namespace srjit::sass
