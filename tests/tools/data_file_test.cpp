#include "tools/files/data.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ir/numbers/random.h"
#include "tests/generators/scratch.h"
#include "tools/values.h"

namespace srjit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Csv, ReadsHeaderAndColumns) {
  const Result<DataTable> table = parseCsv("a,b\n1,2\n-3.5e2, +4 \n", "t.csv");
  ASSERT_TRUE(table.ok()) << table.error().message;
  EXPECT_THAT(table->names, ElementsAre("a", "b"));
  EXPECT_THAT(table->columns, ElementsAre(ElementsAre(1, -350), ElementsAre(2, 4)));
  EXPECT_TRUE(table->named);
  EXPECT_EQ(table->rows(), 2);
}

TEST(Csv, AcceptsCommonDialects) {
  for (const std::string_view text : {"a,b\r\n1,2\r\n3,4\r\n",
                                      "\xEF\xBB\xBF"
                                      "a,b\n1,2\n3,4",
                                      "\"a\",\"b\"\n\"1\",2\n3,\"4\"\n", "a,b\n\n1,2\n   \n3,4\n\n", "a,b\r1,2\r3,4\r",
                                      " a , b \n 1 , 2 \n\t3,4\n"}) {
    const Result<DataTable> table = parseCsv(text, "t.csv");
    ASSERT_TRUE(table.ok()) << table.error().message;
    EXPECT_THAT(table->names, ElementsAre("a", "b")) << text;
    EXPECT_THAT(table->columns, ElementsAre(ElementsAre(1, 3), ElementsAre(2, 4))) << text;
  }
  EXPECT_THAT(parseCsv("\"a,\nb\",\"say \"\"c\"\"\"\n1,2\n", "")->names, ElementsAre("a,\nb", "say \"c\""));
  EXPECT_THAT(parseCsv("0,1\n5,6\n", "")->names,
              ElementsAre("0", "1"));  // the header that data frames without names are saved with
  EXPECT_THAT(parseCsv("a\n1\n2\n", "")->columns, ElementsAre(ElementsAre(1, 2)));
}

TEST(Csv, NumbersAreReadExactly) {
  EXPECT_EQ(*parseNumber("0.1"), 0.1);
  EXPECT_EQ(*parseNumber("4.9e-324"), std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(*parseNumber("INF"), kInf);
  EXPECT_EQ(*parseNumber("-Infinity"), -kInf);
  EXPECT_TRUE(std::isnan(*parseNumber("NaN")));
  EXPECT_TRUE(std::signbit(*parseNumber("-0")));
  for (const std::string_view bad :
       {"", " ", "x", "1.5.2", "1,5", "0x10", "--1", "+-1", "1e", "nan(7)", "1 2", "1f", "TRUE"}) {
    ASSERT_FALSE(parseNumber(bad).ok()) << bad;
    EXPECT_THAT(parseNumber(bad).error().message, HasSubstr("is not a number"));
  }
  for (const std::string beyond : {"1e999", "1e-400", "+1e-400", "-1e-400", "1e-324"}) {
    EXPECT_EQ(parseNumber(beyond).error().message,
              "'" + beyond + "' is out of the range of a double, 4.9e-324 to 1.8e308")
        << "as in expressions";
  }
  EXPECT_EQ(*parseNumber("0e-400"), 0);
}

TEST(Csv, OfOtherForms) {
  const CsvForm form{.delimiter = ';', .decimal = ',', .ignored = {"name", "note"}};
  const DataTable table = parseCsv("name;a;note;b\nJohn, x;1,5;;2\n\"a;b\";-3e-2;?;0,25\n", "t.csv", form).value();
  EXPECT_THAT(table.names, ElementsAre("a", "b"));
  EXPECT_THAT(table.columns, ElementsAre(ElementsAre(1.5, -0.03), ElementsAre(2, 0.25)));
  EXPECT_EQ(parseCsv("name;note;a\nx;y;1.5\n", "t.csv", form).error().message,
            "t.csv:2:5: '1.5' is not a number with decimal ',' (column 'a')\nx;y;1.5\n    ^~~");
  EXPECT_EQ(parseCsv("name;a\nx;1\n", "t.csv", form).error().message,
            "t.csv: column 'note' is to be ignored, but is not in the data; its columns are name, a");
  EXPECT_EQ(parseCsv("name;note\nx;1\n", "t.csv", form).error().message, "t.csv: all columns are ignored");
  EXPECT_THAT(parseCsv("a\tb\n1\t2\n", "t.csv", {.delimiter = '\t'})->columns,
              ElementsAre(ElementsAre(1), ElementsAre(2)));
}

TEST(Csv, MissingCellsAreReadOnlyWhereTheyAreDropped) {
  const std::string text = "a,b\n1,2\n,3\n4,NA\nnan,5\n6,n/a\nNULL,7\n8,9\n";
  const std::pair<MissingCells, std::string> refused[] = {
      {MissingCells::kRefused, "t.csv:3:1: empty cell in column 'a'\n,3\n^"},
      {MissingCells::kDroppable,
       "t.csv:3:1: empty cell in column 'a'; --drop-missing leaves out rows with missing values\n,3\n^"}};
  for (const auto& [missing, message] : refused)
    EXPECT_EQ(parseCsv(text, "t.csv", {.missing = missing}).error().message, message);
  EXPECT_EQ(parseCsv("a\nNA\n", "t.csv", {.missing = MissingCells::kDroppable}).error().message,
            "t.csv:2:1: 'NA' is not a number (column 'a'); --drop-missing leaves out rows with missing values\nNA\n^~");
  EXPECT_THAT(parseCsv("a\noops\n", "t.csv", {.missing = MissingCells::kRead}).error().message,
              HasSubstr("'oops' is not a number"));
  DataTable table = parseCsv(text, "t.csv", {.missing = MissingCells::kRead}).value();
  EXPECT_EQ(table.rows(), 7U);
  EXPECT_EQ(dropMissing(table), 5U);
  EXPECT_THAT(table.columns, ElementsAre(ElementsAre(1, 8), ElementsAre(2, 9)));
  EXPECT_EQ(dropMissing(table), 0U);
}

TEST(Csv, ABlankLineIsAMissingValueOfASingleColumn) {
  for (const std::string text :
       {"a\n1\n2\n", "\n\na\n1\n2", "a\n1\n2\n\n\n", "a\r\n1\r\n2\r\n\r\n", "a\r1\r2\r\r", "a\n1\n2\n  \n\t"}) {
    const Result<DataTable> table = parseCsv(text, "t.csv");
    ASSERT_TRUE(table.ok()) << table.error().message;
    EXPECT_THAT(table->columns, ElementsAre(ElementsAre(1, 2))) << text;
  }
  const std::pair<std::string, std::string> cases[] = {
      {"a\n1\n\n3\n", "t.csv:3:1: empty cell in column 'a'\n\n^"},
      {"a\n\n1\n", "t.csv:2:1: empty cell in column 'a'\n\n^"},
      {"a\r\n1\r\n\r\n3\r\n", "t.csv:3:1: empty cell in column 'a'\n\n^"},
      {"a\r1\r\r3", "t.csv:3:1: empty cell in column 'a'\n\n^"},
      {"\n\na\n1\n2\n  \n\n3\n", "t.csv:6:3: empty cell in column 'a'\n  \n  ^"},
      {"a\n1\n\n\n3\n\nx\n", "t.csv:3:1: empty cell in column 'a'\n\n^"},
      {"a\n1\n\"\"\n3\n", "t.csv:3:1: empty cell in column 'a'\n\"\"\n^~"},
      {"a\n1\nx\n\n3\n", "t.csv:3:1: 'x' is not a number (column 'a')\nx\n^"},
  };
  for (const auto& [text, message] : cases) {
    const Result<DataTable> table = parseCsv(text, "t.csv");
    ASSERT_FALSE(table.ok()) << text;
    EXPECT_EQ(table.error().message, message) << text;
  }
}

TEST(Csv, ParsesHeadersAlone) {
  EXPECT_THAT(*parseCsvHeader("mass, speed,\"a,b\"", "--columns"), ElementsAre("mass", "speed", "a,b"));
  EXPECT_THAT(*parseCsvHeader("", "--columns"), testing::IsEmpty());
  EXPECT_EQ(parseCsvHeader("a,,b", "--columns").error().message, "--columns:1:3: a column without a name\na,,b\n  ^");
  EXPECT_EQ(parseCsvHeader("a,b,a", "--columns").error().message,
            "--columns:1:5: a second column called 'a'\na,b,a\n    ^");
  EXPECT_THAT(parseCsvHeader("a\n1", "--columns").error().message,
              StartsWith("--columns:1:2: the names of columns are one line\n"));
}

struct BadCsv {
  std::string_view text, message;
};

TEST(Csv, ErrorsHaveAPosition) {
  const BadCsv cases[] = {
      {"", "t.csv:1:1: the file is empty"},
      {"\n\n", "t.csv:1:1: the file is empty"},
      {"a,b\n", "t.csv:2:1: the file has a header, but no rows"},
      {"a,b\n1,x\n", "t.csv:2:3: 'x' is not a number (column 'b')\n1,x\n  ^"},
      {"a,b\n1,2\n\n3, oops \n", "t.csv:4:4: 'oops' is not a number (column 'b')\n3, oops \n   ^"},
      {"a,b\r\n1,2\r\n3,1e999\r\n",
       "t.csv:3:3: '1e999' is out of the range of a double, 4.9e-324 to 1.8e308 (column 'b')\n3,1e999\n  ^"},
      {"a,b\n1,2\n3,-1e-400\n",
       "t.csv:3:3: '-1e-400' is out of the range of a double, 4.9e-324 to 1.8e308 (column 'b')\n3,-1e-400\n  ^"},
      {"a,b\n1,\n", "t.csv:2:3: empty cell in column 'b'\n1,\n  ^"},
      {"a,b\n,2\n", "t.csv:2:1: empty cell in column 'a'\n,2\n^"},
      {"a,b\n1,2,3\n", "t.csv:2:5: a cell too many: the header names 2 columns\n1,2,3\n    ^"},
      {"a,b\n1,2\n7\n", "t.csv:3:2: the line ends after 1 cell, but the header names 2 columns\n7\n ^"},
      {"a,b\n1,2\n7", "t.csv:3:2: the line ends after 1 cell, but the header names 2 columns\n7\n ^"},
      {"a,b,a\n1,2,3\n", "t.csv:1:5: a second column called 'a'\na,b,a\n    ^"},
      {"a,,c\n1,2,3\n", "t.csv:1:3: a column without a name\na,,c\n  ^"},
      {"1.5,2.5\n3,4\n", "t.csv:1:1: the first line must name the columns, but '1.5' is a number\n1.5,2.5\n^"},
      {"a,b\n1,\"2\n3,4\n", "t.csv:4:1: a quoted cell is not closed at the end of the file"},
      {"a,b\n1,\"2\"3\n", "t.csv:2:6: a quote inside a cell must be doubled, and the cell be quoted\n1,\"2\"3\n     ^"},
      {"a,b\n1,2\"3\n", "t.csv:2:4: a quote inside a cell must be doubled, and the cell be quoted\n1,2\"3\n   ^"},
      {"a,b\n1,\"x\ny\"\n", "t.csv:2:3: 'x\\x0ay' is not a number (column 'b')\n1,\"x\n  ^"},
  };
  for (const auto& [text, message] : cases) {
    const Result<DataTable> table = parseCsv(text, "t.csv");
    ASSERT_FALSE(table.ok()) << text;
    EXPECT_EQ(table.error().code, Errc::kIo);
    EXPECT_THAT(table.error().message, StartsWith(std::string(message))) << text;
  }
}

TEST(Csv, ErrorsInLateRowsHaveAPosition) {
  std::string text = "a,b\n";
  for (int i = 0; i < 100000; ++i) text += "1.5,-2.25e3\n";
  ASSERT_EQ(parseCsv(text, "t.csv")->rows(), 100000);
  EXPECT_THAT(parseCsv(text + "1,?\n1,2\n", "t.csv").error().message,
              StartsWith("t.csv:100002:3: '?' is not a number"));
}

TEST(Csv, MessagesTruncateLongCells) {
  const std::string cell(100000, 'q');
  const std::string message = parseCsv("a\n" + cell + "\n", "t.csv").error().message;
  EXPECT_THAT(message, StartsWith("t.csv:2:1: '" + std::string(40, 'q') + "...' is not a number"));
  EXPECT_LT(message.size(), 500);
}

/// Any bytes give a table or an error with a position, never a crash.
TEST(Csv, RandomBytesParseOrFailWithAPosition) {
  Random random(7);
  constexpr std::string_view kAlphabet("12.e-,,,\n\n\r\"\" \txN\0\xEF", 19);
  for (int round = 0; round < 20000; ++round) {
    std::string text = round % 2 == 0 ? "a,b\n" : "";
    for (std::size_t size = random.below(40); size > 0; --size) text += kAlphabet[random.below(kAlphabet.size())];
    const Result<DataTable> table = parseCsv(text, "t.csv");
    if (table) {
      ASSERT_GE(table->rows(), 1);
      for (const auto& column : table->columns) ASSERT_EQ(column.size(), table->rows()) << text;
    } else {
      ASSERT_TRUE(table.error().where.has_value()) << text;
      ASSERT_THAT(table.error().message, testing::ContainsRegex("^t.csv:[0-9]+:[0-9]+: [a-z']")) << text;
    }
  }
}

std::string npy(std::string_view header, std::string_view elements, int version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += {static_cast<char>(version), '\0'};
  const auto size = static_cast<std::uint32_t>(header.size());
  bytes.append(reinterpret_cast<const char*>(&size), version == 1 ? 2 : 4);
  return bytes.append(header).append(elements);
}

template <class T>
std::string elements(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

TEST(Npy, ReadsBothOrdersAndTypes) {
  const std::string rows = elements<double>({1, 2, 3, 4, 5, 6});
  const auto c = parseNpy(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), }   \n", rows), "m.npy");
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_THAT(c->columns, ElementsAre(ElementsAre(1, 3, 5), ElementsAre(2, 4, 6)));
  EXPECT_THAT(c->names, ElementsAre("0", "1"));
  EXPECT_FALSE(c->named);
  EXPECT_FALSE(c->from_f32);
  const auto f = parseNpy(npy("{'shape':(3,2),'fortran_order':True,'descr':'<f8'}", rows, 2), "m.npy");
  EXPECT_THAT(f->columns, ElementsAre(ElementsAre(1, 2, 3), ElementsAre(4, 5, 6)));
  const auto single = parseNpy(
      npy("{\"descr\": \"<f4\", 'fortran_order': False, 'shape': (1, 2)}", elements<float>({0.1f, 2}), 3), "m.npy");
  EXPECT_THAT(single->columns, ElementsAre(ElementsAre(double{0.1f}), ElementsAre(2)));
  EXPECT_TRUE(single->from_f32);
}

template <class T>
void expectIntegers(std::string_view descr) {
  const T least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
  const std::string header = "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': (2, 2), }\n";
  const auto table = parseNpy(npy(header, elements<T>({least, 1, most, 7})), "m.npy");
  ASSERT_TRUE(table.ok()) << table.error().message;
  EXPECT_THAT(table->columns,
              ElementsAre(ElementsAre(static_cast<double>(least), static_cast<double>(most)), ElementsAre(1, 7)))
      << descr;
  EXPECT_FALSE(table->from_f32);
}

TEST(Npy, IntegersAndBooleansAreNumbers) {
  expectIntegers<std::int8_t>("|i1");
  expectIntegers<std::uint8_t>("|u1");
  expectIntegers<std::int16_t>("<i2");
  expectIntegers<std::uint16_t>("<u2");
  expectIntegers<std::int32_t>("<i4");
  expectIntegers<std::uint32_t>("<u4");
  expectIntegers<std::int64_t>("<i8");
  expectIntegers<std::uint64_t>("<u8");
  const auto truths = parseNpy(
      npy("{'descr': '|b1', 'fortran_order': True, 'shape': (2, 2), }\n", elements<std::uint8_t>({0, 1, 1, 1})),
      "m.npy");
  ASSERT_TRUE(truths.ok()) << truths.error().message;
  EXPECT_THAT(truths->columns, ElementsAre(ElementsAre(0, 1), ElementsAre(1, 1)));
}

TEST(Npy, ErrorsDescribeTheFault) {
  const std::string four = elements<double>({1, 2, 3, 4});
  const auto with = [&](std::string_view descr, std::string_view order, std::string_view shape) {
    return npy("{'descr': " + std::string(descr) + ", 'fortran_order': " + std::string(order) +
                   ", 'shape': " + std::string(shape) + ", }\n",
               four);
  };
  const std::string good = with("'<f8'", "False", "(2, 2)");
  ASSERT_TRUE(parseNpy(good, "").ok());
  const std::pair<std::string, std::string_view> cases[] = {
      {"", "not an .npy file"},
      {"a,b\n1,2\n", "not an .npy file"},
      {good.substr(0, 7), "ends within its first 8 bytes"},
      {good.substr(0, 9), "ends within its header"},
      {good.substr(0, 30), "ends within its header"},
      {npy("{}", four, 9), "format version 9 is unknown"},
      {good.substr(0, good.size() - 1), "shape (2, 2) of 8-byte elements does not fit the 31 bytes"},
      {good + "x", "shape (2, 2) of 8-byte elements does not fit the 33 bytes"},
      {with("'<f8'", "False", "(4,)"), "the array has 1 dimension; data must have 2"},
      {with("'<f8'", "False", "()"), "the array has 0 dimensions"},
      {with("'<f8'", "False", "(2, 2, 1)"), "the array has 3 dimensions"},
      {with("'<f8'", "False", "(0, 2)"), "the shape (0, 2) holds no rows"},
      {with("'<f8'", "False", "(2, 0)"), "holds no rows"},
      {with("'<f8'", "False", "(9223372036854775808, 2)"), "does not fit"},
      {with("'<f8'", "False", "(99999999999999999999999, 2)"), "expected a shape"},
      {with("'<f8'", "False", "(-2, 2)"), "expected a shape"},
      {with("'<f8'", "False", "(2, 2"), "expected a shape"},
      {with("'>f8'", "False", "(2, 2)"),
       "elements of type '>f8'; data must be booleans, integers, float32 or float64 of this machine's byte order: "
       "convert them with numpy.save(file, array.astype(float))"},
      {with("'<c16'", "False", "(2, 2)"), "elements of type '<c16'"},
      {with("'|S8'", "False", "(2, 2)"), "elements of type '|S8'"},
      {with("[('a', '<f8')]", "False", "(2, 2)"),
       "header, byte 11: expected a simple type such as '<f8', found '[('a', '<f8'"},
      {with("'<f8'", "Maybe", "(2, 2)"), "expected True or False, found 'Maybe"},
      {npy("{'descr': '<f8', 'shape': (2, 2)}", four), "header lacks one of"},
      {npy("{'descr': '<f8', 'descr': '<f8'}", four), "has the key 'descr' twice"},
      {npy("{'size': 3}", four), "unknown key 'size'"},
      {npy("{'descr' '<f8'}", four), "expected ':'"},
      {npy("{'descr", four), "expected a key"},
      {npy("import os", four), "expected '{', found 'import os'"},
      {npy("{'descr': '<f8', 'fortran_order': True, 'shape': (2, 2)} x", four), "expected its end, found 'x'"},
  };
  for (const auto& [bytes, message] : cases) {
    const Result<DataTable> table = parseNpy(bytes, "m.npy");
    ASSERT_FALSE(table.ok()) << message;
    EXPECT_EQ(table.error().code, Errc::kIo);
    EXPECT_THAT(table.error().message, StartsWith("m.npy: "));
    EXPECT_THAT(table.error().message, HasSubstr(std::string(message)));
  }
}

TEST(Data, FormatFollowsFromTheContent) {
  const Scratch scratch;
  const std::string matrix = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1)}", elements<double>({7}));
  EXPECT_THAT(readData(scratch.write("m.npy", matrix))->columns, ElementsAre(ElementsAre(7)));
  EXPECT_THAT(readData(scratch.write("m.dat", matrix))->columns, ElementsAre(ElementsAre(7)));
  EXPECT_THAT(readData(scratch.write("t.csv", "a\n8\n"))->columns, ElementsAre(ElementsAre(8)));
  EXPECT_THAT(readData(scratch.write("t.npy", "a\n8\n")).error().message, HasSubstr("t.npy: not an .npy file"));
  EXPECT_EQ(readData(scratch.path("none.csv")).error().code, Errc::kIo);
}

TEST(Data, TargetAndWeightsAreNoVariables) {
  const DataTable table = *parseCsv("a,y,b,w\n1,2,3,4\n", "t.csv");
  const Result<Roles> roles = assignRoles(table, "y", "w");
  ASSERT_TRUE(roles.ok());
  EXPECT_THAT(roles->names, ElementsAre("a", "b"));
  EXPECT_EQ(roles->variables.size(), 2);
  EXPECT_THAT(roles->variables[1], ElementsAre(3));
  EXPECT_THAT(roles->target, ElementsAre(2));
  EXPECT_THAT(roles->weights, ElementsAre(4));
  EXPECT_EQ(assignRoles(table, "", "")->variables.size(), 4);
  EXPECT_EQ(assignRoles(table, "z", "").error().message,
            "target column 'z' is not in the data; its columns are a, y, b, w");
  EXPECT_EQ(assignRoles(table, "y", "z").error().message,
            "weights column 'z' is not in the data; its columns are a, y, b, w");
  EXPECT_EQ(assignRoles(table, "y", "y").error().message, "column 'y' cannot be both target and weights");
  const ColumnNames columns(roles->names, roles->others);
  EXPECT_EQ(columns.find("b"), 1);
  EXPECT_EQ(columns.roleOf("y"), "target");
  EXPECT_EQ(columns.roleOf("w"), "weights");
}

TEST(Data, MessagesTruncateAndEscapeNames) {
  const std::string longest(1'000'000, 'q');
  const DataTable table = *parseCsv(longest + ",b\x1b[31m,\"c\nd\"\n1,2,3\n", "t.csv");
  EXPECT_EQ(assignRoles(table, "z", "").error().message, "target column 'z' is not in the data; its columns are '" +
                                                             std::string(40, 'q') + "...', 'b\\x1b[31m', 'c\\x0ad'");
}

template <class T>
void checkMatrix(const std::string& name) {
  const Scratch scratch;
  const T nan = std::numeric_limits<T>::quiet_NaN(), inf = std::numeric_limits<T>::infinity();
  const std::vector<T> first = {T(0.1), T(-0.0), nan, std::numeric_limits<T>::denorm_min()};
  const std::vector<T> second = {T(1) / T(3), inf, -inf, std::numeric_limits<T>::max()};
  const std::span<const T> columns[] = {first, second};
  const std::string path = scratch.path(name);
  Result<OutputFile> out = OutputFile::create(path);
  writeMatrix<T>(*out, columns, path);
  ASSERT_TRUE(out->publish().ok());
  const Result<DataTable> table = readData(path);
  ASSERT_TRUE(table.ok()) << table.error().message;
  ASSERT_EQ(table->columns.size(), 2);
  for (std::size_t column = 0; column < 2; ++column) {
    for (std::size_t row = 0; row < first.size(); ++row) {
      const T expected = columns[column][row], found = static_cast<T>(table->columns[column][row]);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(found));
      } else {
        EXPECT_EQ(std::memcmp(&expected, &found, sizeof(T)), 0) << expected << " became " << found;
      }
    }
  }
  if (name == "out.csv") {
    EXPECT_THAT(contentOf(path), StartsWith("e0,e1\n0.1,0.3333333"));
  } else {
    EXPECT_EQ((contentOf(path).size() - 8 * sizeof(T)) % 64, 0);
  }
}

TEST(Matrix, ReadsBackExactly) {
  checkMatrix<float>("out.csv");
  checkMatrix<double>("out.csv");
  checkMatrix<float>("out.npy");
  checkMatrix<double>("out.npy");
}

TEST(Matrix, JsonNumbersOutsideJsonAreStrings) {
  std::string text;
  for (const double value : {0.1, kInf, -kInf, -std::nan("")}) appendJsonNumber(text += ' ', value, Precision::kF32);
  EXPECT_EQ(text, " 0.1 \"inf\" \"-inf\" \"nan\"");
}

}  // namespace
}  // namespace srjit
