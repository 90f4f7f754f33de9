// Patterns of names: what they match, what is refused, and that no pattern is expensive.
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "holdfast/wire/pattern.hpp"

using namespace holdfast;

static bool match(std::string_view pattern, std::string_view name) {
    return NamePattern(pattern).matches(name);
}

static void test_what_matches() {
    CHECK(match("", "") && !match("", "a") && !match("a", ""));
    CHECK(match("a|b|", "b") && match("a|b|", "") && !match("a|b|", "ab"));
    CHECK(match("a*b+c?", "bb") && match("a*b+c?", "aabc") && !match("a*b+c?", "ac"));
    CHECK(match("(ab){2,3}", "ababab") && !match("(ab){2,3}", "ab"));
    CHECK(match("x{2,}", "xxxx") && !match("x{2,}", "x") && match("(x{0}y)*", "yy"));
    CHECK(match("[^a-c]\\d\\.", "x7.") && !match("[^a-c]\\d\\.", "a7."));
    CHECK(match("\\Qa.*\\E+", "a.**") && !match("\\Qa.*\\E", "abb"));
    CHECK(match("^a$", "a") && match("(^|x)a", "a") && match("(^|x)a", "xa") && !match("a^", "a"));
    CHECK(match("[\\w.-]+", "a_1-.") && match("[-a]", "-") && match("[a-]", "-"));
}

// A character is one, however many bytes it has.
static void test_characters() {
    CHECK(match("..", "\xc3\xa9\xe2\x82\xac") && !match(".", "\xc3\xa9\xe2\x82\xac"));
    CHECK(match("[\xc3\xa0-\xc3\xbc]", "\xc3\xa9") && !match("[\xc3\xa0-\xc3\xbc]", "e"));
    CHECK(match("\xf0\x9f\x90\x98?", "\xf0\x9f\x90\x98"));
    for (const std::string_view torn : {"\xc3", "\xe2\x82", "\xff\xff", "\x80"}) {
        match(".*", torn);  // no characters, and no harm
        match(torn, torn);
    }
}

static void test_what_is_refused() {
    for (const char* each :
         {"(", ")", "[", "[]", "*", "a**", "x{2,1}", "x{", "x{2", "\\", "[z-a]", "[a-", "[\\d-z]"})
        CHECK_ERROR(Code::misuse, NamePattern{each}, "cannot be read at byte");
    for (const char* each : {"(?=a)", "(a)\\1", "a*+", "[a&&b]", "[[a]]", "\\b", "a{1001}"})
        CHECK_ERROR(Code::unsupported, NamePattern{each}, "on your side");
    CHECK_ERROR(Code::misuse, NamePattern{std::string(kPatternBytesMax + 1, 'x')}, "1024");
    CHECK_ERROR(Code::unsupported, NamePattern{std::string(200, '(') + std::string(200, ')')},
                "groups");
    for (const char* each : {"((a{100}){100}){100}", "(((){1000}){1000}){1000}", "(a{0,60}){0,60}"})
        CHECK_ERROR(Code::unsupported, NamePattern{each}, "too large");
}

static void test_none_is_expensive() {
    const std::string name(1000, 'a');
    for (const char* each : {"(a+)+b", "(a|a)*b", "(a*)*b", "((a*)*)*b", "(a?){30}a{30}b"})
        CHECK(!match(each, name));
    std::string ways;
    for (int i = 0; i < 50; ++i) ways += "(a|a|a|a|a|a|a|a)*";
    CHECK_ERROR(Code::unsupported, match(ways + "b", name), "too many ways");
    CHECK(match(ways + "b", "ab"));
    CHECK(NamePattern(ways).size() <= kPatternStatesMax);
}

static void test_noise() {
    std::mt19937_64 random(3);
    const std::string_view letters = "ab(|)[]{}*+?.^$\\-,:&dwQE019\xc3\xa9";
    int refused = 0;
    for (int round = 0; round < 50000; ++round) {
        std::string text, name;
        for (u64 i = random() % 24; i > 0; --i) text += letters[random() % letters.size()];
        for (u64 i = random() % 12; i > 0; --i) name += letters[random() % letters.size()];
        try {
            match(text, name);
        } catch (const Error& error) {
            CHECK(error.code == Code::misuse || error.code == Code::unsupported);
            ++refused;
        }
    }
    CHECK(refused > 1000 && refused < 49000);
}

int main() {
    test_what_matches();
    test_characters();
    test_what_is_refused();
    test_none_is_expensive();
    test_noise();
}
