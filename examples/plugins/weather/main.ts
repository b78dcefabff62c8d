// A tool for the model. All that goes out goes through `host`; nothing survives the call.

interface Forecast {
  days: { date: string; low: number; high: number; sky: string }[];
}

async function ask(city: string, days: number): Promise<Forecast> {
  const units = host.settings.get("units") as string;
  const [own] = (host.settings.get("servers") ?? []) as string[];
  const key = await host.settings.getSecret("apiKey");
  const query = `city=${encodeURIComponent(city)}&days=${days}&units=${units}`;
  const response = await host.fetch(`https://${own ?? "api.weather.example"}/v1/forecast?${query}`, {
    headers: { authorization: `Bearer ${key}`, accept: "application/json" },
  });
  if (response.status === 404) {
    throw new Error(`there is no place called ${city}`);
  }
  if (!response.ok) {
    host.log.warn(`the weather service answered ${response.status}`);
    throw new Error("the weather service does not answer");
  }
  return JSON.parse(response.body) as Forecast;
}

export const tools = {
  async forecast({ city, days = 3 }: { city: string; days?: number }) {
    const forecast = await ask(city, days);
    host.log.info(`${forecast.days.length} days for ${city}`);
    const degree = host.settings.get("units") === "imperial" ? "°F" : "°C";
    const lines = forecast.days.map((day) => `${day.date}: ${day.sky}, ${day.low} to ${day.high} ${degree}`);
    return { city, text: lines.join("\n") };
  },
};

export const events = {
  async installed() {
    await host.session.todos.set([{ text: "Ask for the weather of your town" }]);
  },
};
