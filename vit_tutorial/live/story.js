// The story's stations, in their order: the diagram grows by a part at each.
const ORDER = ["patches", "embedding", "positions", "attention", "mlp", "layers", "head", "learned", "what-if"];

// How far the story has come: the station of its stop, or the last one where everything is shown.
export function reached({ state, stops }) {
  const { station, tells = station } = stops[state.stop];
  return state.isWhole ? "what-if" : tells;
}
// A stop that watches attention has a guess first. At "ask" it is a patch; at the others one of some choices.
export const isGuessing = ({ state, stops }) => Boolean(stops[state.stop].watch) && !state.hasGuessed && !state.isAway;
export const isGuessingPatch = (page) => isGuessing(page) && page.stops[page.state.stop].watch === "ask";
export const isTold = (page, station) => ORDER.indexOf(station) <= ORDER.indexOf(reached(page));

// The guided tour's stops. At each one a station is open, one part of the page lights up (spot), and a sentence says
// what to try there. A stop whose text is false, for this model, is left out.
//   follow: the token that is followed, "patch" or "class"; none: the reader's
//   asks: what else must be in sight; offers: buttons beside the sentence
//   watch: the part of attention that is guessed, and then played
//   tells: how far the story has come, if not to the station

const STORY = [
  {
    station: "patches",
    spot: ".pad canvas",
    follow: "patch",
    text: ({ canDraw }) =>
      canDraw &&
      "Press Clear and draw a digit: the answer follows your pen. Now draw a star: it names a digit even so.",
  },
  {
    station: "patches",
    spot: ".pad canvas",
    offers: ["another"],
    follow: "patch",
    text: ({ canDraw, K }) =>
      !canDraw && `Take another picture, or drop your own. Whatever it shows, the model picks one of ${K} names.`,
  },
  {
    station: "patches",
    spot: ".picker canvas",
    asks: ["[data-tour=pixels]"],
    follow: "patch",
    text: ({ N, H, W, click }) =>
      `The model gets the picture, ${H} × ${W} pixels, in ${N} pieces, called patches. ` +
      `${click} one: could you name the picture from it?`,
  },
  {
    station: "embedding",
    spot: "[data-tour=token]",
    asks: [".picker canvas"],
    offers: ["another"],
    follow: "patch",
    text: ({ D, canDraw, click }) =>
      `A table learned in training, E, turns the patch into ${D} numbers: a token. ` +
      (canDraw
        ? `${click} two patches that are all black: do their tokens differ?`
        : `${click} others: how much do their tokens differ?`),
  },
  {
    station: "embedding",
    spot: '[data-meaning="row"]',
    asks: ["[data-tour=token]"],
    follow: "patch",
    text: ({ isTried, point }) =>
      isTried &&
      "Each number is the patch’s pixels times numbers of E, added up, plus a bias. " +
        `The framed one is largest for these six: what do they share? ${point} other numbers.`,
  },
  {
    station: "positions",
    spot: "[data-tour=position]",
    asks: [".picker canvas", "[data-tour=z0]"],
    follow: "patch",
    text: ({ hasPositions, canDraw, click }) =>
      hasPositions &&
      "The token doesn’t say where its patch was. So a list for its place is added. " +
        (canDraw
          ? `${click} the same two black patches: do they differ now?`
          : `${click} other patches: each place has its own.`),
  },
  {
    station: "positions",
    spot: "[data-tour=z0]",
    asks: [".picker canvas"],
    follow: "class",
    offers: ["another"],
    text: ({ hasClassToken }) =>
      hasClassToken &&
      "One more token joins: the class token, of no patch. It will collect the answer. " +
        "Take another picture: do its numbers change here?",
  },
  {
    station: "attention",
    spot: "[data-tour=watch]",
    tells: "positions",
    watch: "ask",
    follow: "class",
    text: ({ aToken, click }) =>
      "In attention, tokens exchange what they know. Each has a query q, a key k and a value v. " +
      `Whose k fits the q of ${aToken} best? ${click} the patch that you guess.`,
  },
  {
    station: "attention",
    spot: "[data-tour=watch]",
    watch: "look",
    follow: "class",
    text: ({ click }) =>
      "Its q times a k, summed, is a score. Softmax makes shares of them. Guess: how large is the largest? " +
      `Then ${click.toLowerCase()} another patch: where does it look?`,
  },
  {
    station: "attention",
    spot: "[data-tour=watch]",
    watch: "take",
    follow: "class",
    text: () =>
      "Each token adds its v, in proportion to its share. Guess: how many tokens give half of all? " +
      "Then move the temperature: how many now?",
  },
  {
    station: "attention",
    spot: ".heads",
    asks: ['[data-meaning="head"]'],
    follow: "class",
    text: ({ h }) =>
      h > 1 &&
      `Each token looks in ${h} ways at once: ${h} heads. You saw one of them. ` +
        "Choose another: what does that one look for?",
  },
  {
    station: "attention",
    spot: "[data-tour=middle]",
    asks: ["[data-tour=added]"],
    follow: "class",
    text: ({ point }) =>
      "What all heads took becomes one list. It is added to the token: z + the list = z′. " +
      `So the old token stays in it: a residual connection. ${point} a number of z′: which two make it?`,
  },
  {
    station: "mlp",
    spot: "[data-tour=hidden]",
    asks: ['[data-meaning="unit"]'],
    text: ({ M, point, isTried }) =>
      `Then the MLP, a small network: its ${M} hidden units look at each token alone. ` +
      `The better a unit fits, the more of its list it adds to the token. ${point} one: ${isTried ? "what switches it on" : "is it on, above 0"}?`,
  },
  {
    station: "layers",
    spot: "[data-tour=lens]",
    offers: ["another"],
    text: ({ L }) =>
      `Attention and MLP are a block. ${L > 1 ? `Here ${L} follow each other, each with its own numbers. ` : ""}` +
      "Take other pictures: when does the answer settle?",
  },
  {
    station: "head",
    spot: "[data-tour=probabilities]",
    offers: ["another", "clear"],
    text: ({ read }) =>
      `The classifier reads ${read}. Each class, a possible answer, gets a share of 100 %. ` +
      "Press Clear: how sure is it of nothing? Then take another picture.",
  },
  {
    station: "layers",
    tells: "learned",
    spot: ".answer",
    offers: ["another"],
    text: ({ hasStates }) =>
      hasStates &&
      "All its numbers began as noise: each digit got about 10 %. Training changed them little by little, towards right answers. " +
        "Move the slider, from 0 epochs on: when is it sure of your picture?",
  },
  {
    station: "what-if",
    spot: ".map",
    offers: ["reset", "shuffle"],
    text: ({ click }) =>
      `Now break it: ${click.toLowerCase()} parts of the diagram to cut them. Does the answer survive? ` +
      "Then press Reset, then Shuffle all: patches change places. What is it now?",
  },
  {
    station: "what-if",
    spot: "[data-tour=questions]",
    offers: ["another", "reset", "shuffle"],
    text: ({ hasDoors }) =>
      "You have met every part. Here are five tasks: the page ticks what you have done. " +
      "If one can’t be done, take another picture. " +
      (hasDoors ? "Then follow a link." : "Then go on, as the last line says."),
  },
];

// What the sentences say of this model.
function wordsOf({ sizes, config, classes, meaning, states, doors, isOfDigits }) {
  const hasClassToken = sizes.prefix > 0;
  return {
    ...sizes,
    K: classes.length,
    canDraw: isOfDigits && sizes.H <= 32,
    isTried: Boolean(meaning),
    hasPositions: config.position !== "none",
    hasClassToken,
    hasStates: states.length > 0,
    hasDoors: Object.keys(doors).length > 0,
    aToken: hasClassToken ? "the class token" : "your patch",
    read: config.pool === "cls" ? "the class token only" : "the mean of all patches",
    point: matchMedia("(pointer: coarse)").matches ? "Tap" : "Point at",
    click: matchMedia("(pointer: coarse)").matches ? "Tap" : "Click",
  };
}

// The story of this model: its stops, each with its text.
export function storyOf(model) {
  const words = wordsOf(model);
  return STORY.map((stop) => ({ ...stop, text: stop.text(words) })).filter(({ text }) => text);
}
