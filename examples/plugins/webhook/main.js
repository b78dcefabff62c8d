// A channel and a middleware hook, in plain JavaScript.

const signature = async (body) => host.crypto.hmac("sha256", await host.settings.getSecret("signingKey"), body);

export const channels = {
  webhook: {
    // A request came in: is it genuine, and what does it say?
    async receive({ headers, body }) {
      const claimed = headers["x-signature"] ?? "";
      if (!host.crypto.timingSafeEqual(claimed, await signature(body))) {
        host.log.warn("a request with a wrong signature");
        return { messages: [] };
      }
      const { from, text } = JSON.parse(body);
      return { messages: [{ from, text }] };
    },

    async send({ text }) {
      const [target] = host.settings.get("hosts");
      const body = JSON.stringify({ text });
      const response = await host.fetch(`https://${target}/messages`, {
        method: "POST",
        headers: { "content-type": "application/json", "x-signature": await signature(body) },
        body,
      });
      // Nothing is tried again after "[rejected]".
      if (response.status === 403) throw new Error("[rejected] the other side does not take our messages");
      if (!response.ok) throw new Error(`the other side answered ${response.status}`);
      return { sent: true };
    },
  },
};

export const middleware = {
  // Middleware gives back the value that goes on along the chain.
  async beforeModel(turn) {
    if (!host.settings.get("shout")) return turn;
    return { ...turn, text: turn.text.toUpperCase() };
  },
};
