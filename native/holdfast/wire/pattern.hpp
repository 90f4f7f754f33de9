// Patterns of names that clients send: regular expressions as far as they can be matched in time that grows with the name
// alone. There is no backtracking: all ways through the pattern are followed at once (Thompson's construction), each state
// at most once per character. What cannot be had that way (references back, looking around, possessive repetition) is
// refused, as is a pattern that grows too large when its repetitions are written out.
//
// A pattern and a name are UTF-8, and matched character by character; a pattern must match the whole of a name.
//
//   x .  [a-z^&]  \d \w \s \D \W \S  \t \n \r \f  \. and the like  \Q…\E  (…) (?:…)  x|y  x* x+ x? x{2} x{2,} x{2,5}  ^ $
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/base/errors.hpp"
#include "holdfast/base/types.hpp"

namespace holdfast {

inline constexpr std::size_t kPatternBytesMax = 1024;
inline constexpr std::size_t kPatternStatesMax = 4096;  // with its repetitions written out
inline constexpr u32 kPatternRepeatMax = 1000;
inline constexpr u32 kPatternDepthMax = 64;            // of groups
inline constexpr u64 kPatternStepsMax = u64{1} << 15;  // for one name

namespace pattern_detail {

inline constexpr u32 kCharMax = 0x10ffff;

// The next character, which is taken from the front. Bytes that are no UTF-8 stand for themselves.
inline u32 take_char(std::string_view& text) {
    const u8 lead = static_cast<u8>(text[0]);
    const std::size_t size = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (size == 1 || size > text.size()) {
        text.remove_prefix(1);
        return lead;
    }
    u32 out = lead & (0xffu >> (size + 1));
    for (std::size_t i = 1; i < size; ++i) out = out << 6 | (static_cast<u8>(text[i]) & 0x3f);
    text.remove_prefix(size);
    return out;
}

// Characters, as ranges with both ends.
class CharSet {
 public:
    void add(u32 first, u32 last) { ranges_.emplace_back(first, last); }
    void add(const CharSet& other) {
        ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
    }

    // In order and apart: before has() is asked.
    void settle() {
        std::sort(ranges_.begin(), ranges_.end());
        std::size_t last = 0;
        for (std::size_t i = 1; i < ranges_.size(); ++i) {
            if (ranges_[i].first <= ranges_[last].second)
                ranges_[last].second = std::max(ranges_[last].second, ranges_[i].second);
            else
                ranges_[++last] = ranges_[i];
        }
        if (!ranges_.empty()) ranges_.resize(last + 1);
    }

    void invert() {
        settle();
        std::vector<std::pair<u32, u32>> out;
        u32 from = 0;
        for (const auto& [first, last] : ranges_) {
            if (first > from) out.emplace_back(from, first - 1);
            from = last + 1;
        }
        if (from <= kCharMax) out.emplace_back(from, kCharMax);
        ranges_ = std::move(out);
    }

    bool has(u32 c) const {
        const auto after = std::upper_bound(
            ranges_.begin(), ranges_.end(), c,
            [](u32 value, const std::pair<u32, u32>& each) { return value < each.first; });
        return after != ranges_.begin() && c <= std::prev(after)->second;
    }

 private:
    std::vector<std::pair<u32, u32>> ranges_;
};

enum class NodeKind : u8 { set, begin, end, sequence, choice, repeat };

struct Node {
    NodeKind kind;
    u32 set = 0;
    u32 least = 0, most = 0;      // of a repeat; kUnbounded: as often as can be
    std::vector<u32> parts = {};  // other nodes
};

inline constexpr u32 kUnbounded = ~u32{0};

// From text to nodes.
class PatternParser {
 public:
    explicit PatternParser(std::string_view text) : text_(text), left_(text) {
        root = choice(0);
        if (!left_.empty()) fail("a ) without its (");
    }

    std::vector<Node> nodes;
    std::vector<CharSet> sets;
    u32 root = 0;

 private:
    [[noreturn]] void fail(const std::string& why) const {
        throw Error(Code::misuse, "the pattern cannot be read at byte " +
                                      std::to_string(text_.size() - left_.size()) + ": " + why);
    }
    [[noreturn]] void refuse(const std::string& what) const {
        throw Error(Code::unsupported, what + " in a pattern, at byte " +
                                           std::to_string(text_.size() - left_.size()) +
                                           ": match with it on your side");
    }

    bool at(char c) const { return !left_.empty() && left_[0] == c; }
    bool take(char c) {
        if (!at(c)) return false;
        left_.remove_prefix(1);
        return true;
    }
    u32 add(Node&& node) {
        nodes.push_back(std::move(node));
        return static_cast<u32>(nodes.size() - 1);
    }
    u32 add(CharSet&& set) {
        set.settle();
        sets.push_back(std::move(set));
        return add(Node{NodeKind::set, static_cast<u32>(sets.size() - 1)});
    }

    u32 choice(u32 depth) {
        if (depth > kPatternDepthMax)
            refuse("more than " + std::to_string(kPatternDepthMax) + " groups in each other");
        Node out{NodeKind::choice};
        do out.parts.push_back(sequence(depth));
        while (take('|'));
        return out.parts.size() == 1 ? out.parts[0] : add(std::move(out));
    }

    u32 sequence(u32 depth) {
        Node out{NodeKind::sequence};
        while (!left_.empty() && !at('|') && !at(')')) {
            if (left_.starts_with("\\Q")) {
                quoted(out.parts);
                continue;
            }
            out.parts.push_back(repeated(atom(depth)));
        }
        return add(std::move(out));
    }

    // \Q…\E: every character for itself.
    void quoted(std::vector<u32>& parts) {
        left_.remove_prefix(2);
        const std::size_t before = parts.size();
        while (!left_.empty() && !left_.starts_with("\\E"))
            parts.push_back(literal(take_char(left_)));
        if (!left_.empty()) left_.remove_prefix(2);
        if (parts.size() > before) parts.back() = repeated(parts.back());
    }

    u32 literal(u32 c) {
        CharSet set;
        set.add(c, c);
        return add(std::move(set));
    }

    u32 atom(u32 depth) {
        if (take('(')) {
            if (at('?')) {
                left_.remove_prefix(1);
                if (!take(':')) refuse("a group that begins with (?");
            }
            const u32 out = choice(depth + 1);
            if (!take(')')) fail("a ( without its )");
            return out;
        }
        if (take('[')) return char_class();
        if (take('.')) {
            CharSet any;
            any.add(0, kCharMax);
            return add(std::move(any));
        }
        if (take('^')) return add(Node{NodeKind::begin});
        if (take('$')) return add(Node{NodeKind::end});
        if (at('*') || at('+') || at('?') || at('{')) fail("nothing that could be repeated");
        if (take('\\')) {
            CharSet set;
            escaped(set);
            return add(std::move(set));
        }
        return literal(take_char(left_));
    }

    // What stands behind a \. Answers the character, if it is one alone.
    u32 escaped(CharSet& out) {
        if (left_.empty()) fail("a \\ at the end");
        const u32 c = take_char(left_);
        CharSet set;
        switch (c) {
            case 'd':
            case 'D':
                set.add('0', '9');
                break;
            case 'w':
            case 'W':
                set.add('0', '9');
                set.add('A', 'Z');
                set.add('a', 'z');
                set.add('_', '_');
                break;
            case 's':
            case 'S':
                set.add(' ', ' ');
                set.add('\t', '\r');
                break;
            default:
                const u32 one = plain(c);
                out.add(one, one);
                return one;
        }
        if (c < 'a') set.invert();
        out.add(set);
        return kUnbounded;
    }

    u32 plain(u32 c) const {
        if (c == 't') return '\t';
        if (c == 'n') return '\n';
        if (c == 'r') return '\r';
        if (c == 'f') return '\f';
        const bool word =
            (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (word) refuse(std::string("\\") + static_cast<char>(c));
        return c;
    }

    u32 char_class() {
        const bool inverted = take('^');
        CharSet out;
        bool empty = true;
        while (!take(']')) {
            if (left_.empty()) fail("a [ without its ]");
            if (at('[') || left_.starts_with("&&")) refuse("a class in a class");
            const u32 first = in_class(out);
            empty = false;
            if (!at('-') || left_.starts_with("-]")) continue;
            left_.remove_prefix(1);
            if (left_.empty() || at('[')) fail("a range without an end");
            const u32 last = in_class(out);
            if (first == kUnbounded || last == kUnbounded || last < first)
                fail("a range that goes from nowhere to nowhere");
            out.add(first, last);
        }
        if (empty) fail("a class of no characters");
        if (inverted) out.invert();
        return add(std::move(out));
    }

    u32 in_class(CharSet& out) {
        if (take('\\')) {
            if (at('Q') || at('E')) refuse("a quotation in a class");
            return escaped(out);
        }
        const u32 c = take_char(left_);
        out.add(c, c);
        return c;
    }

    u32 repeated(u32 node) {
        Node out{NodeKind::repeat};
        if (take('*')) {
            out.most = kUnbounded;
        } else if (take('+')) {
            out.least = 1;
            out.most = kUnbounded;
        } else if (take('?')) {
            out.most = 1;
        } else if (take('{')) {
            out.least = out.most = count();
            if (take(',')) out.most = at('}') ? kUnbounded : count();
            if (!take('}')) fail("a { without its }");
            if (out.most < out.least) fail("a repetition of more than its most");
        } else {
            return node;
        }
        take('?');  // as few as can be: the same where all of it must match
        if (at('+')) refuse("possessive repetition");
        if (at('*') || at('?') || at('{')) fail("a repetition of a repetition");
        out.parts.push_back(node);
        return add(std::move(out));
    }

    u32 count() {
        if (left_.empty() || left_[0] < '0' || left_[0] > '9') fail("{ without a number");
        u32 out = 0;
        while (!left_.empty() && left_[0] >= '0' && left_[0] <= '9') {
            out = out * 10 + static_cast<u32>(left_[0] - '0');
            left_.remove_prefix(1);
            if (out > kPatternRepeatMax)
                refuse("a repetition of more than " + std::to_string(kPatternRepeatMax));
        }
        return out;
    }

    std::string_view text_, left_;
};

}  // namespace pattern_detail

class NamePattern {
 public:
    explicit NamePattern(std::string_view text) {
        if (text.size() > kPatternBytesMax)
            throw Error(Code::misuse, "a pattern of " + std::to_string(text.size()) +
                                          " bytes; it can have " +
                                          std::to_string(kPatternBytesMax));
        pattern_detail::PatternParser parsed(text);
        nodes_ = std::move(parsed.nodes);
        sets_ = std::move(parsed.sets);
        emit(parsed.root);
        states_.push_back({Do::match, 0, 0});
        nodes_.clear();
        nodes_.shrink_to_fit();
    }

    std::size_t size() const { return states_.size(); }

    // Does it match the whole name? Can be called by several threads at once.
    bool matches(std::string_view name) const {
        Walk walk(*this);
        walk.enter(0, true, name.empty());
        while (!name.empty()) {
            const u32 c = pattern_detail::take_char(name);
            walk.step(c, name.empty());
            if (walk.lost()) return false;
        }
        return walk.matched();
    }

 private:
    enum class Do : u8 { match, take, fork, jump, begin, end };
    struct State {
        Do what;
        u32 set;  // take: of which a character; fork, jump: where to
        u32 or_;  // fork: or there
    };

    void emit(u32 index) {
        using pattern_detail::NodeKind;
        // Repetitions of nothing make no states, but take time all the same.
        if (states_.size() >= kPatternStatesMax || ++work_ > 4 * kPatternStatesMax)
            throw Error(Code::unsupported,
                        "the pattern is too large with its repetitions written out; match with "
                        "it on your side");
        const pattern_detail::Node& node = nodes_[index];
        switch (node.kind) {
            case NodeKind::set:
                add(Do::take, node.set);
                return;
            case NodeKind::begin:
                add(Do::begin);
                return;
            case NodeKind::end:
                add(Do::end);
                return;
            case NodeKind::sequence:
                for (const u32 each : node.parts) emit(each);
                return;
            case NodeKind::choice:
                return emit_choice(node);
            case NodeKind::repeat:
                return emit_repeat(node);
        }
    }

    void emit_choice(const pattern_detail::Node& node) {
        std::vector<u32> ends;
        for (std::size_t i = 0; i + 1 < node.parts.size(); ++i) {
            const u32 fork = add(Do::fork, here() + 1);
            emit(node.parts[i]);
            ends.push_back(add(Do::jump));
            states_[fork].or_ = here();
        }
        emit(node.parts.back());
        for (const u32 each : ends) states_[each].set = here();
    }

    void emit_repeat(const pattern_detail::Node& node) {
        for (u32 i = 0; i < node.least; ++i) emit(node.parts[0]);
        if (node.most == pattern_detail::kUnbounded) {
            const u32 fork = add(Do::fork, here() + 1);
            emit(node.parts[0]);
            add(Do::jump, fork);
            states_[fork].or_ = here();
            return;
        }
        std::vector<u32> forks;
        for (u32 i = node.least; i < node.most; ++i) {
            forks.push_back(add(Do::fork, here() + 1));
            emit(node.parts[0]);
        }
        for (const u32 each : forks) states_[each].or_ = here();
    }

    u32 here() const { return static_cast<u32>(states_.size()); }
    u32 add(Do what, u32 set = 0) {
        states_.push_back({what, set, 0});
        return here() - 1;
    }

    // One name on its way through: the states that wait for the next character.
    class Walk {
     public:
        explicit Walk(const NamePattern& pattern)
            : pattern_(pattern), seen_(pattern.states_.size(), 0) {}

        // Everything that can be reached from a state without a character.
        void enter(u32 state, bool first, bool last) {
            todo_.push_back(state);
            while (!todo_.empty()) {
                const u32 at = todo_.back();
                todo_.pop_back();
                if (seen_[at] == round_) continue;
                seen_[at] = round_;
                count();
                const State& each = pattern_.states_[at];
                switch (each.what) {
                    case Do::match:
                        matched_ = true;
                        break;
                    case Do::take:
                        waiting_.push_back(at);
                        break;
                    case Do::fork:
                        todo_.push_back(each.or_);
                        todo_.push_back(each.set);
                        break;
                    case Do::jump:
                        todo_.push_back(each.set);
                        break;
                    case Do::begin:
                        if (first) todo_.push_back(at + 1);
                        break;
                    case Do::end:
                        if (last) todo_.push_back(at + 1);
                        break;
                }
            }
        }

        void step(u32 c, bool last) {
            ++round_;
            matched_ = false;
            std::swap(waiting_, before_);
            waiting_.clear();
            for (const u32 at : before_) {
                count();
                if (pattern_.sets_[pattern_.states_[at].set].has(c)) enter(at + 1, false, last);
            }
        }

        bool matched() const { return matched_; }
        bool lost() const { return waiting_.empty() && !matched_; }

     private:
        void count() {
            if (++steps_ > kPatternStepsMax)
                throw Error(Code::unsupported,
                            "the pattern can be matched in too many ways; match with it on your "
                            "side");
        }

        const NamePattern& pattern_;
        std::vector<u32> seen_;  // the round in which a state was entered last
        std::vector<u32> waiting_, before_, todo_;
        u32 round_ = 1;
        u64 steps_ = 0;
        bool matched_ = false;
    };

    std::vector<pattern_detail::Node> nodes_;
    std::vector<pattern_detail::CharSet> sets_;
    std::vector<State> states_;
    u64 work_ = 0;
};

}  // namespace holdfast
